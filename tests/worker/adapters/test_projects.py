"""Projects as CrewAI's own commands make them, and folders from before there were any, run as they are."""

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.testing import ModelServer

CREATE = "import sys; from crewai_cli.cli import crewai; sys.argv[0] = 'crewai'; crewai()"


@pytest.fixture
def create(
    crewai_fleet: Any, run_crewai: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """``crewai create KIND NAME``, which asks nothing and needs no network."""
    monkeypatch.chdir(tmp_path)  # a new flow writes where its worker runs

    def run(kind: str, name: str, *more: str) -> Path:
        quiet = {"CREWAI_DMN": "1", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_VERSION_CHECK": "true"}
        made = run_crewai("-c", CREATE, "create", kind, name, *more, cwd=tmp_path, env={**os.environ, **quiet})
        made.check_returncode()
        return tmp_path / name

    return run


@pytest.mark.parametrize(
    ("kind", "more", "inputs", "tasks"),
    [
        pytest.param(
            *("crew", ["--classic"], ["topic=tea", "current_year=2026"], ["research_task", "reporting_task"]),
            marks=pytest.mark.soak,
        ),
        ("crew", [], [], ["research_task"]),
        ("flow", [], [], ["plan_content", "generate_content", "save_content"]),
    ],
    ids=["crew", "crew-as-data", "flow"],
)
def test_a_new_project_runs_as_it_is(
    crewai_fleet: Any,
    create: Callable[..., Path],
    models: ModelServer,
    kind: str,
    more: list[str],
    inputs: list[str],
    tasks: list[str],
) -> None:
    project = create(kind, "newest", *more)
    crewai_fleet.start("--concurrency", "1", wait=False)
    crewai_fleet.start("--concurrency", "1", wait=False)
    given = [word for one in inputs for word in ("--input", one)]
    done = crewai_fleet.runner("submit", str(project), *given, "--json", cwd=project, timeout=170)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], list(told["outputs"])) == ("completed", tasks)
    assert told["ledger"]["paid"] == models.paid > 0


NAMES = """
import json, os, sys
from runner.core.errors import UsageError
from runner.client.submission import prepare

for folder, target in json.load(sys.stdin):
    os.chdir(folder)
    try:
        found = prepare(target, alone=True)
        found.reader.close()
        print(json.dumps([f"{found.packed.module}:{found.attr}", sorted(found.inputs)]))
    except UsageError as error:
        print(json.dumps([str(error)]))
"""


@pytest.fixture
def prepared(run_crewai: Callable[..., Any]) -> Callable[[list[tuple[str, str]]], list[Any]]:
    """What each target in a folder stands for, or why for nothing; in one process."""
    return lambda targets: _lines(run_crewai("-c", NAMES, input=json.dumps(targets)))


def _lines(told: Any) -> list[Any]:
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines() if line.startswith("[")]


NAMED: dict[tuple[str, str], Any] = {
    ("shop", "."): ["shop.crew:Shop", []],
    ("shop", "src/shop"): ["shop.crew:Shop", []],
    ("shop", "src/shop/crew.py"): ["shop.crew:Shop", []],
    ("shop", "src/shop/crew.py:Shop"): ["shop.crew:Shop", []],
    ("shop", "shop.crew:Shop"): ["shop.crew:Shop", []],
    ("shop/src/shop", "crew.py:Shop"): ["shop.crew:Shop", []],
    ("shop", "src/shop/main.py"): ["shop.main:run", ["current_year", "topic"]],
    ("shop", "src/shop/main.py:run"): ["shop.main:run", ["current_year", "topic"]],
    ("shop", "crew.py:Shop"): ["no such file: crew.py; did you mean src/shop/crew.py?"],
    ("shop", "src/shop/crew.py:Shopp"): ["crew.py has no 'Shopp'; did you mean 'Shop'?"],
    ("shop", "src"): ["src is a directory; name the crew file in it: src/shop/crew.py"],
    (".", "shop"): ["shop.crew:Shop", []],
    (".", "shop:Shop"): ["shop.crew:Shop", []],
    (".", "news"): ["news.main:ContentFlow", []],
    ("news", "src/news/main.py"): ["news.main:ContentFlow", []],
    ("news", "news.main:ContentFlow"): ["news.main:ContentFlow", []],
    ("news", "src/news/main.py:kickoff"): ["news.main:kickoff", []],
    ("news", "src/news/main.py:plot"): [
        "main.py:plot returned nothing, not a crew; to run it as a function, name main.py:plot()"
    ],
}


@pytest.mark.soak
def test_every_way_to_name_a_project(
    prepared: Callable[..., list[Any]], create: Callable[..., Path], models: ModelServer
) -> None:
    home = create("crew", "shop", "--classic").parent
    create("flow", "news")
    found = prepared([(str(home / folder), target) for folder, target in NAMED])
    assert dict(zip(NAMED, found, strict=True)) == NAMED
    assert not models.requests


OLD = {
    "agents.py": """
        import os
        from crewai import Agent

        class TripAgents:
            def guide(self):
                assert os.environ["HOUSE_WORD"] == "from the file"
                return Agent(role="guide", goal="guide", backstory="knows the way")
        """,
    "tasks.py": """
        from crewai import Task

        class TripTasks:
            def plan(self, agent):
                return Task(name="plan", description="A day in {city}.", expected_output="text", agent=agent)
        """,
    "main.py": """
        from agents import TripAgents
        from crewai import Crew
        from tasks import TripTasks

        class TripCrew:
            def run(self):
                agent = TripAgents().guide()
                crew = Crew(agents=[agent], tasks=[TripTasks().plan(agent)])
                return crew.kickoff(inputs={"city": "Rome"})

        if __name__ == "__main__":
            print(TripCrew().run())
        """,
    ".env": "HOUSE_WORD='from the file'\nOPENAI_API_KEY=sk-in-the-file\n",
}


def test_an_old_folder_runs_on_a_worker_that_gets_its_env_file(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trip"
    folder.mkdir()
    for name, text in OLD.items():
        (folder / name).write_text(textwrap.dedent(text))
    monkeypatch.delenv("OPENAI_API_KEY")
    server = {"RUNNER_REDIS_URL": ""}  # the embedded one, and a worker that is started by submit
    done = crewai_fleet.runner("submit", str(folder), "--json", timeout=170, cwd=tmp_path, **server)
    assert done.returncode == 0, done.stderr
    assert f"from {folder / '.env'}: HOUSE_WORD, OPENAI_API_KEY\n" in done.stderr
    assert "sk-in-the-file" not in done.stderr + done.stdout
    assert [request.last.count("Rome") for request in models.log] == [1]


TYPOS = {
    ("config/tasks.yaml", "agent: clerk", "agent: clrk"): "Shop: config/tasks.yaml: agent of task 'sell' names 'clrk', "
    "but the class has no method of that name with @agent; did you mean 'clerk'?",
    (
        "config/agents.yaml",
        "clerk:",
        "clark:",
    ): "Shop: config/agents.yaml has no agent 'clerk', which clerk() asks for; did you mean 'clark'?",
    (
        "config/tasks.yaml",
        "sell:",
        "buy:",
    ): "Shop: config/tasks.yaml has no task 'sell', which sell() asks for; there is buy",
    ("crew.py", "config=self.agents", "config={}['clerk'] or self.agents"): "crew.py:8: KeyError: 'clerk'",
}
SHOP = {
    "config/agents.yaml": "clerk:\n  role: r\n  goal: g\n  backstory: b\n",
    "config/tasks.yaml": "sell:\n  description: d\n  expected_output: x\n  agent: clerk\n",
    "crew.py": """
        from crewai import Agent, Crew, Task
        from crewai.project import CrewBase, agent, crew, task
        @CrewBase
        class Shop:
            @agent
            def clerk(self):
                return Agent(config=self.agents_config["clerk"])
            @task
            def sell(self):
                return Task(config=self.tasks_config["sell"])
            @crew
            def crew(self):
                return Crew(agents=self.agents, tasks=self.tasks)
        """,
}


def test_a_name_in_the_yaml_that_is_not_there_is_said_with_its_place(
    prepared: Callable[..., list[Any]], models: ModelServer, tmp_path: Path
) -> None:
    for number, (place, old, new) in enumerate(TYPOS):
        (tmp_path / str(number) / "config").mkdir(parents=True)
        for name, text in SHOP.items():
            changed = text.replace(old, new) if name == place else text
            (tmp_path / str(number) / name).write_text(textwrap.dedent(changed))
    found = prepared([(str(tmp_path / str(number)), ".") for number in range(len(TYPOS))])
    assert found == [[said] for said in TYPOS.values()]
    assert not models.requests


MAKES_TWO = """
    def make():
        return Crew(agents=[], tasks=[])

    def other():
        return Crew(agents=[], tasks=[])
"""
TAKES_ONE = """
    def make(topic):
        return Crew(agents=[], tasks=[])
"""
KICKS_OFF = """
    from crewai import Agent, Task

    def make():
        agent = Agent(role="r", goal="g", backstory="b")
        task = Task(description="On {topic}.", expected_output="x", agent=agent)
        Crew(agents=[agent], tasks=[task]).kickoff()

    make()
"""


TWO_AGENTS = """
    from crewai import Agent

    a, b = (Agent(role="r", goal="g", backstory="b") for _ in "ab")
"""
NOT_RUN = {
    MAKES_TWO: "main.py makes a crew in 2 places: make, other; name one, as in main.py:make",
    TAKES_ONE: "main.py: no crew or flow in it; it defines make (a function): write crew = Crew(...) in it, or a "
    "function without arguments that returns one",
    "": "main.py: no crew or flow in it; it defines nothing: write crew = Crew(...) in it, or a "
    "function without arguments that returns one",
    TWO_AGENTS: "main.py has 2 crews: a, b; name one, as in main.py:a",
    "    import crewai_tols": "main.py:2: no module named 'crewai_tols': install it where you submit from, too",
}


def test_what_cannot_be_run_is_said(prepared: Callable[..., list[Any]], models: ModelServer, tmp_path: Path) -> None:
    for number, code in enumerate(NOT_RUN):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "main.py").write_text(textwrap.dedent(f"    from crewai import Crew\n{code}"))
    found = prepared([(str(tmp_path / str(number)), "main.py") for number in range(len(NOT_RUN))])
    assert found == [[said] for said in NOT_RUN.values()]
    assert not models.requests


def test_an_input_that_nobody_gives_is_named(crewai_fleet: Any, models: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(textwrap.dedent(f"    from crewai import Crew\n{KICKS_OFF}"))
    refused = crewai_fleet.runner("submit", "main.py", cwd=tmp_path)
    said = "error: the crew needs the input 'topic': give it with --input topic=..."
    assert (refused.returncode, refused.stderr.splitlines()[-1][: len(said)]) == (2, said)
    assert not models.requests


NOT_HERE = "raise ModuleNotFoundError(\"No module named 'crewai'\", name='crewai')"


def test_where_crewai_is_not_installed_one_line_says_what_to_install(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "without" / "crewai").mkdir(parents=True)
    (tmp_path / "without" / "crewai" / "__init__.py").write_text(NOT_HERE)
    without = {"PYTHONPATH": f"{tmp_path / 'without'}{os.pathsep}{os.environ['PYTHONPATH']}"}
    here = tmp_path / "here"
    here.mkdir()
    (here / "crew.py").write_text(
        "from crewai import Agent, Crew, Task\nagent = Agent(role='r', goal='g', backstory='b')\n"
        "crew = Crew(agents=[agent], tasks=[Task(description='d', expected_output='x', agent=agent)])\n"
    )
    missing = "no module named 'crewai' (pip install 'crew-runner[crewai]')"
    refused = crewai_fleet.runner("submit", "crew.py", cwd=here, **without)
    assert (refused.returncode, refused.stderr) == (
        2, f"error: crew.py:1: {missing}: install it where you submit from, too\n"
    )  # fmt: skip
    crewai_fleet.start("--concurrency", "1", **without)
    failed = crewai_fleet.runner("submit", "crew.py", "--json", cwd=here, timeout=170)
    told = json.loads(failed.stdout)
    assert (failed.returncode, told["status"]) == (1, "failed"), failed.stderr
    assert missing in told["error"]
    assert "install it there and resume the run" in told["error"]
    assert "\n" not in told["error"]
