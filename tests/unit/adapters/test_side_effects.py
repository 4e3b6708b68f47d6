"""Which files of CrewAI's crews can do nothing by being read but make their crew."""

from textwrap import dedent

import pytest

from runner.adapters.crewai.side_effects import is_side_effect_free

PLAIN = {
    "a crew": """
        import os
        from pathlib import Path
        from crewai import LLM, Agent, Crew, Task
        model = os.environ.get("MODEL", "openai/gpt-4o-mini")
        topic = Path(__file__).with_name("topic.txt").read_text()
        agent = Agent(role="writer", goal="write", backstory="it writes", llm=LLM(model=model))
        crew = Crew(agents=[agent], tasks=[Task(description=topic, expected_output="text", agent=agent)])
        if __name__ == "__main__":
            print(crew.kickoff())
    """,
    "a class of crews": """
        from crewai import Agent, Crew, Process, Task
        from crewai.project import CrewBase, agent, crew, task
        @CrewBase
        class Writers:
            agents: list
            def __init__(self):
                self.many = 1
            @agent
            def writer(self) -> Agent:
                return Agent(config=self.agents_config["writer"])
            @crew
            def crew(self) -> Crew:
                return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
    """,
    "a module beside it": "from .texts import TOPIC",
}

NOT = {
    "another library": "import requests",
    "a listener": "from crewai.events import crewai_event_bus",
    "a hook": "from crewai.hooks import register_before_llm_call_hook",
    "all of CrewAI": "import crewai",
    "a method of CrewAI's": "from crewai import Crew\nCrew.kickoff = print",
    "the same by its name": "from crewai import Crew\nsetattr(Crew, 'kickoff', print)",
    "the environment": "import os\nos.environ['A'] = 'b'",
    "the working directory": "import os\nos.chdir('/')",
    "a process": "import os\nos.system('true')",
    "the same by another name": "import os as o\no.system('true')",
    "the same by a variable": "import os\no = os\no.system('true')",
    "the same through a module": "import os\nos.path.os.system('true')",
    "the same from a module": "from pathlib import os as o\no.system('true')",
    "the environment in a text": 'import os\nf\'{os.putenv("A", "b")}\'',
    "a method of CrewAI's as a default": "from crewai import Crew\ndef f(a=setattr(Crew, 'kickoff', 1)): ...",
    "a method of CrewAI's by a loop": "from crewai import Crew\nfor Crew.kickoff in [1]: ...",
    "a decorator": "import functools\n@functools.cache\ndef f(): ...",
    "a private name": "from crewai import Crew\nCrew._run(1)",
    "a file": "from pathlib import Path\nPath('a').write_text('b')",
    "a file by a builtin": "open('a', 'w')",
    "code in a text": "exec('1')",
    "what a builtin is called here": "do = eval",
    "signals": "import signal",
    "threads": "import threading",
    "logging": "import logging",
    "a tool": "from crewai.tools import tool",
    "a callback of a class": "from crewai.project import before_kickoff",
}


@pytest.mark.parametrize("source", PLAIN.values(), ids=PLAIN)
def test_these_can(source: str) -> None:
    assert is_side_effect_free(dedent(source).encode())


@pytest.mark.parametrize("source", NOT.values(), ids=NOT)
def test_these_may_do_more(source: str) -> None:
    assert not is_side_effect_free(source.encode())
