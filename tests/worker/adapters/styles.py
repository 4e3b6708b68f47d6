"""Projects as authors lay them out around CrewAI, each with what it takes to run it by Python alone.

Written in the style of published projects; nothing of others stands here. ``NAME`` in their texts is the project's
name, by which its requests are known.
"""

from typing import NamedTuple


class Style(NamedTuple):
    """``target`` is what is submitted, in the project's folder: a file, an object in one, or "." for the folder itself.
    ``alone`` is the file that Python runs, or the function that the project's script calls."""

    target: str
    alone: str
    files: dict[str, str]


AGENT = 'Agent(role="NAME clerk", goal="Find it", backstory="Patient", allow_delegation=False)'
IMPORTS = "from crewai import Agent, Crew, Process, Task\n"
YAML = {
    "agents.yaml": """
clerk:
  role: >
    NAME clerk of {topic}
  goal: >
    Find it
  backstory: >
    Patient
""",
    "tasks.yaml": """
look:
  description: >
    Look at {topic}
  expected_output: >
    A line
  agent: clerk
write:
  description: >
    Write of {topic}
  expected_output: >
    A page
  agent: clerk
  context:
    - look
""",
}
BASED = '''
from crewai import Agent, Crew, Process, Task
from crewai.project import CrewBase, agent, crew, task

@CrewBase
class Shop:
    """The shop's crew"""
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @agent
    def clerk(self) -> Agent:
        return Agent(config=self.agents_config["clerk"], verbose=True)

    @task
    def look(self) -> Task:
        return Task(config=self.tasks_config["look"])

    @task
    def write(self) -> Task:
        return Task(config=self.tasks_config["write"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential, verbose=True)
'''
PROJECT = """
[project]
name = "NAME"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["crewai"]

[project.scripts]
run_crew = "{of}.main:{call}"
kickoff = "{of}.main:{call}"
"""


def task(text: str, agent: str = "clerk", more: str = "") -> str:
    """The source of a task."""
    return f'Task(description="{text}", expected_output="A line", agent={agent}{more})'


def configured(folder: str) -> dict[str, str]:
    """The files of ``config``."""
    return {f"{folder}config/{name}": text for name, text in YAML.items()}


STYLES = {
    "tutorial": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}
clerk = {AGENT}
look = {task("Look at owls")}
write = {task("Write of owls", more=", context=[look]")}
crew = Crew(agents=[clerk], tasks=[look, write], verbose=True)
result = crew.kickoff()
print("######")
print(result)
"""
        },
    ),
    "guarded": Style(
        "crew.py:__main__",
        "crew.py",
        {
            "crew.py": f"""{IMPORTS}
clerk = {AGENT}
crew = Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])

if __name__ == "__main__":
    print(crew.kickoff(inputs={{"topic": "owls"}}).raw)
"""
        },
    ),
    "functions": Style(
        "main.py",
        "main.py",
        {
            "agents.py": f"from crewai import Agent\n\ndef make_clerk():\n    return {AGENT}\n",
            "tasks.py": f"from crewai import Task\n\ndef make_look(clerk):\n    return {task('Look at owls')}\n",
            "main.py": """
from crewai import Crew
from agents import make_clerk
from tasks import make_look

def main():
    clerk = make_clerk()
    crew = Crew(agents=[clerk], tasks=[make_look(clerk)])
    print(crew.kickoff())

if __name__ == "__main__":
    main()
""",
        },
    ),
    "classes": Style(
        "main.py",
        "main.py",
        {
            "agents.py": f"""
from crewai import Agent

class ShopAgents():
    def clerk(self):
        return {AGENT}
""",
            "tasks.py": """from textwrap import dedent
from crewai import Task

class ShopTasks():
    def look(self, clerk, topic):
        return Task(description=dedent(f'''Look at {topic}'''), expected_output="A line", agent=clerk)
""",
            "main.py": """
from crewai import Crew
from agents import ShopAgents
from tasks import ShopTasks

class ShopCrew:
    def __init__(self, topic):
        self.topic = topic

    def run(self):
        clerk = ShopAgents().clerk()
        crew = Crew(agents=[clerk], tasks=[ShopTasks().look(clerk, self.topic)], verbose=True)
        return crew.kickoff()

if __name__ == "__main__":
    print("## Welcome")
    print(ShopCrew("owls").run())
""",
        },
    ),
    "based": Style(
        "src/shop/main.py:run",
        "shop.main:run",
        {
            "pyproject.toml": PROJECT.format(of="shop", call="run"),
            "src/shop/__init__.py": "",
            "src/shop/crew.py": BASED,
            "src/shop/main.py": (
                'from shop.crew import Shop\n\ndef run():\n    Shop().crew().kickoff(inputs={"topic": "owls"})\n'
            ),
            **configured("src/shop/"),
        },
    ),
    "based-flat": Style(
        "main.py",
        "main.py",
        {
            "crew.py": BASED,
            "main.py": """
from crew import Shop

def run():
    inputs = {"topic": "owls"}
    Shop().crew().kickoff(inputs=inputs)

if __name__ == "__main__":
    run()
""",
            **configured(""),
        },
    ),
    "factory": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}
def create_crew(topic: str) -> Crew:
    clerk = {AGENT}
    return Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])

if __name__ == "__main__":
    topic = "owls"
    print(create_crew(topic).kickoff(inputs={{"topic": topic}}))
"""
        },
    ),
    "yaml-by-hand": Style(
        "main.py:__main__",
        "main.py",
        {
            "main.py": """
from pathlib import Path
import yaml
from crewai import Agent, Crew, Task

HERE = Path(__file__).parent
agents = yaml.safe_load((HERE / "config" / "agents.yaml").read_text())
tasks = yaml.safe_load(open(HERE / "config" / "tasks.yaml"))
clerk = Agent(**agents["clerk"])
look = Task(description=tasks["look"]["description"], expected_output="A line", agent=clerk)
crew = Crew(agents=[clerk], tasks=[look])

if __name__ == "__main__":
    crew.kickoff(inputs={"topic": "owls"})
""",
            **configured(""),
        },
    ),
    "tools-folder": Style(
        "main.py",
        "main.py",
        {
            "tools/__init__.py": "",
            "tools/look_tool.py": """
from typing import Type
from crewai.tools import BaseTool
from pydantic import BaseModel, Field

class LookInput(BaseModel):
    word: str = Field(..., description="The word")

class LookTool(BaseTool):
    name: str = "look"
    description: str = "Looks a word up"
    args_schema: Type[BaseModel] = LookInput

    def _run(self, word: str) -> str:
        return f"found {word}"
""",
            "main.py": f"""{IMPORTS}from tools.look_tool import LookTool

clerk = Agent(role="NAME clerk", goal="Find it", backstory="Patient", tools=[LookTool()])
print(Crew(agents=[clerk], tasks=[{task("Look at owls")}]).kickoff())
""",
        },
    ),
    "decorated-tool": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}from crewai.tools import tool

@tool("look")
def look(word: str) -> str:
    '''Looks a word up.'''
    return f"found {{word}}"

def run():
    clerk = Agent(role="NAME clerk", goal="Find it", backstory="Patient", tools=[look])
    return Crew(agents=[clerk], tasks=[{task("Look at owls")}]).kickoff()

if __name__ == "__main__":
    print(run())
"""
        },
    ),
    "own-model": Style(
        "main.py",
        "main.py",
        {
            "llm_config.py": 'from crewai import LLM\n\nllm = LLM(model="openai/gpt-4o-mini", temperature=0.2)\n',
            "main.py": f"""{IMPORTS}from llm_config import llm

clerk = Agent(role="NAME clerk", goal="Find it", backstory="Patient", llm=llm)
crew = Crew(agents=[clerk], tasks=[{task("Look at owls")}])

if __name__ == "__main__":
    crew.kickoff()
""",
        },
    ),
    "hierarchical": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}
clerk = {AGENT}
manager = Agent(role="NAME manager", goal="Lead", backstory="Calm", allow_delegation=True)
work = Task(description="Look at owls", expected_output="A line")
crew = Crew(agents=[clerk], tasks=[work], manager_agent=manager, process=Process.hierarchical)

if __name__ == "__main__":
    print(crew.kickoff())
"""
        },
    ),
    "awaited": Style(
        "main.py:__main__",
        "main.py",
        {
            "main.py": f"""import asyncio
{IMPORTS}
clerk = {AGENT}
crew = Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])

async def main():
    result = await crew.kickoff_async(inputs={{"topic": "owls"}})
    print(result)

if __name__ == "__main__":
    asyncio.run(main())
"""
        },
    ),
    "for-each": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}
clerk = {AGENT}
crew = Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])
results = crew.kickoff_for_each(inputs=[{{"topic": "owls"}}, {{"topic": "eels"}}])
for result in results:
    print(result.raw)
"""
        },
    ),
    "typed-output": Style(
        "main.py",
        "main.py",
        {
            "models.py": "from pydantic import BaseModel\n\nclass Found(BaseModel):\n    text: str = ''\n",
            "main.py": f"""{IMPORTS}from models import Found

clerk = {AGENT}
look = {task("Look at owls")}
write = {task("Write of owls", more=", context=[look], async_execution=False")}
crew = Crew(agents=[clerk], tasks=[look, write], output_log_file=False)

def main():
    result = crew.kickoff()
    print(Found(text=result.raw).model_dump_json(), result.token_usage)

if __name__ == "__main__":
    main()
""",
        },
    ),
    "two-crews": Style(
        "main.py:__main__",
        "main.py",
        {
            "crews/__init__.py": "",
            "crews/first.py": f"""{IMPORTS}
clerk = {AGENT}
first = Crew(agents=[clerk], tasks=[{task("Look at owls")}])
""",
            "crews/second.py": f"""{IMPORTS}
clerk = {AGENT}
second = Crew(agents=[clerk], tasks=[{task("Write of {topic}")}])
""",
            "main.py": """
from crews.first import first
from crews.second import second

def main():
    found = first.kickoff()
    print(second.kickoff(inputs={"topic": found.raw}))

if __name__ == "__main__":
    main()
""",
        },
    ),
    "flow": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""{IMPORTS}from crewai.flow.flow import Flow, listen, start
from pydantic import BaseModel

class State(BaseModel):
    topic: str = "owls"
    text: str = ""

class ShopFlow(Flow[State]):
    @start()
    def choose(self):
        self.state.topic = "eels"

    @listen(choose)
    def look(self):
        clerk = {AGENT}
        crew = Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])
        self.state.text = crew.kickoff(inputs={{"topic": self.state.topic}}).raw

    @listen(look)
    def save(self):
        return self.state.text

def kickoff():
    ShopFlow().kickoff()

if __name__ == "__main__":
    kickoff()
"""
        },
    ),
    "flow-project": Style(
        ".",
        "shop.main:kickoff",
        {
            "pyproject.toml": PROJECT.format(of="shop", call="kickoff") + '\n[tool.crewai]\ntype = "flow"\n',
            "src/shop/__init__.py": "",
            "src/shop/main.py": """
from crewai.flow import Flow, listen, start
from shop.crews.look_crew.look_crew import Shop

class ShopFlow(Flow):
    @start()
    def begin(self):
        return "owls"

    @listen(begin)
    def look(self, topic):
        return Shop().crew().kickoff(inputs={"topic": topic}).raw

def kickoff():
    ShopFlow().kickoff()

def plot():
    ShopFlow().plot()

if __name__ == "__main__":
    kickoff()
""",
            "src/shop/crews/__init__.py": "",
            "src/shop/crews/look_crew/__init__.py": "",
            "src/shop/crews/look_crew/look_crew.py": BASED,
            **configured("src/shop/crews/look_crew/"),
        },
    ),
    "routed": Style(
        "flow.py",
        "flow.py",
        {
            "flow.py": f"""{IMPORTS}from crewai.flow.flow import Flow, listen, router, start

class Routed(Flow):
    @start()
    def begin(self):
        self.state["topic"] = "owls"

    @router(begin)
    def choose(self):
        return "birds" if self.state["topic"] == "owls" else "fish"

    @listen("birds")
    def write(self):
        clerk = {AGENT}
        return Crew(agents=[clerk], tasks=[{task("Look at birds")}]).kickoff().raw

    @listen("fish")
    def give_up(self):
        raise RuntimeError("no fish here")

if __name__ == "__main__":
    print(Routed().kickoff())
"""
        },
    ),
    "agent-alone": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""from crewai import Agent

clerk = {AGENT}

if __name__ == "__main__":
    result = clerk.kickoff("Look at owls")
    print(result.raw)
"""
        },
    ),
    "command-line": Style(
        "main.py",
        "main.py",
        {
            "main.py": f"""import sys
{IMPORTS}
def main(topic):
    clerk = {AGENT}
    print(Crew(agents=[clerk], tasks=[{task("Look at {topic}")}]).kickoff(inputs={{"topic": topic}}))

if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "owls")
"""
        },
    ),
    "settings": Style(
        "main.py",
        "main.py",
        {
            "config.py": 'import os\n\nMODEL = os.getenv("SHOP_MODEL", "gpt-4o-mini")\nTOPICS = ["owls", "eels"]\n',
            "main.py": f"""{IMPORTS}import config

def build(topic):
    clerk = Agent(role="NAME clerk", goal="Find it", backstory="Patient", llm=config.MODEL)
    return Crew(agents=[clerk], tasks=[{task("Look at {topic}")}])

if __name__ == "__main__":
    for topic in config.TOPICS:
        print(build(topic).kickoff(inputs={{"topic": topic}}).raw)
""",
        },
    ),
}
"""Each by its name."""
