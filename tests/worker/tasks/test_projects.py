"""A project in the style of `crewai create crew`, written with this package: its YAML, its callbacks and its hooks."""

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Call, ModelServer, Rule

pytestmark = pytest.mark.timeout(240)

FILES = {
    "pyproject.toml": """
        [project]
        name = "my_team"
        version = "0.1.0"
        [project.scripts]
        run_crew = "my_team.main:run"
        [tool.crewai]
        type = "crew"
    """,
    "src/my_team/__init__.py": "",
    "src/my_team/config/agents.yaml": """
        clerk:
          role: >
            {topic} Clerk
          goal: Know {topic}
          backstory: Reads.
          llm: small
          tools: [look]
        writer:
          role: Writer
          goal: Write
          backstory: Writes.
          llm: small
    """,
    "src/my_team/config/tasks.yaml": """
        facts:
          description: Facts of {topic}, {made}
          expected_output: Facts
          agent: clerk
          callback: note
        text:
          description: A text
          expected_output: Text
          agent: writer
          context: [facts]
    """,
    "src/my_team/crew.py": """
        import os, signal
        from pathlib import Path
        from runner import LLM, Agent, Crew, Process, Task
        from runner.agents.agent_builder.base_agent import BaseAgent
        from runner.hooks import after_llm_call, after_tool_call, before_llm_call, before_tool_call
        from runner.project import CrewBase, after_kickoff, agent, before_kickoff, callback, crew, llm, task, tool
        from runner.tools import tool as as_tool

        LOG = Path(LOG_FILE)

        def die(where):
            flag = LOG.with_name(where)
            if KILLS and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def doing(name):
            die(f"before {name}")
            with LOG.open("a") as out:
                out.write(name + chr(10))
            die(f"in {name}")

        @as_tool
        def look(what: str) -> str:
            "Looks."
            doing(f"tool {what}")
            return "seen " + what

        @after_tool_call
        def louder(context):
            doing("after_tool_call")
            return context.tool_result.upper()

        @CrewBase
        class MyTeam:
            agents: list[BaseAgent]
            tasks: list[Task]

            @before_kickoff
            def prepare(self, inputs):
                doing("before_kickoff")
                self.made = {"by": "prepare"}
                inputs["made"] = "made for " + inputs["topic"]
                return inputs

            @after_kickoff
            def finish(self, output):
                doing("after_kickoff")
                spent = output.token_usage
                output.raw += f" [{self.made['by']}, {len(output.tasks_output)}, {spent.successful_requests}]"
                return output

            @before_llm_call
            def before_model(self, context):
                doing(f"before_llm_call {context.agent.role} {context.iterations}")
                context.messages.append({"role": "user", "content": f"Be kind, {context.iterations}."})

            @after_llm_call(agents=["Writer"])
            def after_model(self, context):
                doing("after_llm_call")
                return context.response + ", signed"

            @before_tool_call
            def before_tool(self, context):
                doing("before_tool_call")
                context.tool_input["what"] = "owls"

            @llm
            def small(self):
                return LLM("openai/gpt-4o-mini")

            @tool
            def look(self):
                return look

            @callback
            def note(self, output):
                with LOG.with_name("callback").open("a") as out:
                    out.write(output.raw)

            @agent
            def clerk(self) -> Agent:
                return Agent(config=self.agents_config["clerk"], verbose=True)

            @agent
            def writer(self) -> Agent:
                return Agent(config=self.agents_config["writer"])

            @task
            def facts(self) -> Task:
                return Task(config=self.tasks_config["facts"])

            @task
            def text(self) -> Task:
                return Task(config=self.tasks_config["text"], output_file="text.md")

            @crew
            def crew(self) -> Crew:
                return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential, verbose=True)
    """,
    "src/my_team/main.py": """
        import sys
        from my_team.crew import MyTeam

        def run():
            try:
                return MyTeam().crew().kickoff(inputs={"topic": "birds"})
            except Exception as e:
                raise Exception(f"An error occurred while running the crew: {e}")

        def train():
            MyTeam().crew().train(n_iterations=int(sys.argv[1]))
    """,
}
SCRIPT = [Rule("Facts of", Call("look", {"what": "fish"}), "Owls fly."), Rule("A text", "Owls are silent")]
RESULT = "Owls are silent, signed [prepare, 2, 3]"
DONE = {
    "before_kickoff",
    "before_llm_call birds Clerk 0",
    "before_tool_call",
    "tool owls",
    "after_tool_call",
    "before_llm_call birds Clerk 1",
    "before_llm_call Writer 0",
    "after_llm_call",
    "after_kickoff",
}


@pytest.fixture
def project(tmp_path: Path) -> Any:
    def write(*, kills: bool) -> Path:
        for name, text in FILES.items():
            file = tmp_path / "my_team" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            log = repr(str(tmp_path / "log"))
            file.write_text(textwrap.dedent(text).replace("LOG_FILE", log).replace("KILLS", str(kills)))
        return tmp_path / "my_team"

    return write


def told(models: ModelServer) -> list[str]:
    return sorted({str(one.messages) for one in models.log})


def test_python_and_the_fleet_do_the_same(fleet: Any, client: Client, project: Any, tmp_path: Path) -> None:
    folder = project(kills=False)
    with ModelServer(SCRIPT) as models:
        fleet.start("--concurrency", "1", **models.environment)
        environment = fleet.environment(PYTHONPATH=str(folder / "src"), **models.environment)
        command = [sys.executable, "-c", "from my_team.main import run; print(run())"]
        alone = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        assert alone.stdout.splitlines()[-1] == RESULT
        lines, asked = Counter((tmp_path / "log").read_text().splitlines()), told(models)
        assert lines == dict.fromkeys(DONE, 1)
        given = ("--input", "topic=birds")
        for target, *more in ((".", *given), ("src/my_team/main.py",), ("src/my_team/crew.py:MyTeam", *given)):
            run = fleet.runner("submit", target, *more, "--detach", cwd=folder).stdout.split()[-1]
            result = client.run(run).wait(60)
            assert (result.status, result.outputs["after_kickoff"]) == ("completed", RESULT), result
            assert list(result.outputs) == ["before_kickoff", "facts", "text", "after_kickoff"]
        assert Counter((tmp_path / "log").read_text().splitlines()) == dict.fromkeys(DONE, 4)
        assert told(models) == asked


def test_hooks_and_callbacks_that_ended_are_called_once_and_one_that_a_kill_hit_once_more(
    fleet: Any, client: Client, project: Any, tmp_path: Path
) -> None:
    folder = project(kills=True)
    with ModelServer(SCRIPT) as models:
        fleet.start("--concurrency", "1", RUNNER_MAX_ATTEMPTS="100", **models.environment)
        run = fleet.runner("submit", ".", "--input", "topic=birds", "--detach", cwd=folder).stdout.split()[-1]
        result = client.run(run).wait(120)
        assert (result.status, result.result) == ("completed", RESULT), result
        # Each was hit twice: before it had done anything, and when it had, and had not returned.
        assert Counter((tmp_path / "log").read_text().splitlines()) == dict.fromkeys(DONE, 2)
        assert (models.requests, result.ledger["paid"], result.ledger["in_doubt"]) == (3, 3, 0)
        assert result.ledger["tools"]["in_doubt"] == 2
        assert result.recoveries == 2 * len(DONE)


ASKS = """
    from runner import Agent, Crew, Task
    from runner.hooks import before_tool_call
    from runner.tools import tool

    @tool
    def remove(name: str) -> str:
        "Removes."
        return "removed " + name

    @before_tool_call(tools=["remove"])
    def approve(context):
        return context.request_human_input("Remove?") == "yes"

    agent = Agent(role="Clerk", llm="openai/gpt-4o-mini", tools=[remove])
    crew = Crew(tasks=[Task(name="one", description="one", agent=agent)])
"""


def test_a_hook_that_asks_a_person_has_the_run_wait(fleet: Any, client: Client, write_crew: Any) -> None:
    with ModelServer([Rule("one", Call("remove", {"name": "x"}), "Done.")]) as models:
        fleet.start("--concurrency", "1", **models.environment)
        run = fleet.runner("submit", str(write_crew(ASKS)), "--detach").stdout.split()[-1]
        assert client.run(run).wait(60).status == "waiting"
        assert fleet.runner("answer", run, "--text", "no").returncode == 0
        result = client.run(run).wait(60)
        assert (result.status, models.requests) == ("completed", 2), result
        assert "blocked by hook" in str(models.log[-1].messages)
