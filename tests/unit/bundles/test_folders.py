"""Which file of a folder with agents is to be run, by what its files say."""

from pathlib import Path

import pytest

from runner.bundles.target import parse_target
from runner.core.errors import BadCrew

AGENT = "from pydantic_ai import Agent\nagent = Agent('test')\n"
CREW = "from crewai import Crew\ncrew = Crew(agents=[], tasks=[])\n"
ADK = "from google.adk.agents.llm_agent import Agent\n"
SCRIPTS = '[project]\nname = "trips"\n[project.scripts]\n'
GRAPHS = '{"dependencies": ["."], "graphs": {%s}}'


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("texts", "file", "attr"),
    [
        ({"__init__.py": "from . import agent\n", "agent.py": ADK, "tools.py": ADK}, "agent.py", None),
        ({"agents/__init__.py": "", "agents/agent.py": ADK}, "agents/agent.py", None),
        ({"main.py": "from agent import agent\n", "agent.py": AGENT}, "main.py", None),
        ({"main.py": "import flask\n", "trips.py": AGENT}, "trips.py", None),
        (
            {"main.py": "from workflows import made\n", "workflows.py": "made = 1\n", "trips.py": AGENT},
            "trips.py",
            None,
        ),
        ({"main.py": "import flask\n", "flow.py": "from workflows import Workflow\n"}, "flow.py", None),
        (
            {
                "pyproject.toml": SCRIPTS + 'trips = "trips.cli:main"\n',
                "src/trips/__init__.py": "",
                "src/trips/cli.py": "from trips.plan import agent\ndef main(): ...\n",
                "src/trips/plan.py": AGENT,
                "src/trips/main.py": AGENT,
            },
            "src/trips/cli.py",
            None,
        ),
        (
            {
                "pyproject.toml": SCRIPTS + 'trips = "trips.cli:main"\n',
                "src/trips/cli.py": "import openai\ndef main(): ...\n",
            },
            "src/trips/cli.py",
            "main()",
        ),
        (
            {"pyproject.toml": SCRIPTS + 'trips = "trips:main"\n', "src/trips/__init__.py": AGENT},
            "src/trips/__init__.py",
            None,
        ),
        (
            {"langgraph.json": GRAPHS % '"agent": "./src/agent/graph.py:graph"', "src/agent/graph.py": AGENT},
            "src/agent/graph.py",
            "graph",
        ),
    ],
)
def test_the_file_that_a_folder_stands_for(texts: dict[str, str], file: str, attr: str | None, tmp_path: Path) -> None:
    found = parse_target(str(files(tmp_path / "trip", **texts)))
    assert (found.file, found.attr) == (tmp_path.resolve() / "trip" / file, attr)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (
            {"a.py": CREW, "b.py": CREW, "tools.py": "from langchain.tools import tool\n"},
            "is a directory; name the crew file in it: {}/a.py, {}/b.py",
        ),
        ({"a.py": AGENT, "b.py": AGENT, "c.py": ""}, "is a directory; name the agent's file in it: {}/a.py, {}/b.py"),
        (
            dict.fromkeys(("a.py", "b.py", "c.py", "d.py", "e.py"), AGENT),
            "is a directory; name the agent's file in it: {}/a.py, {}/b.py, {}/c.py, and 2 more",
        ),
        (
            {"one/agent.py": ADK, "two/agent.py": ADK},
            "is a directory; name the agent's file in it: {}/one/agent.py, {}/two/agent.py",
        ),
        (
            {"langgraph.json": GRAPHS % '"a": "./g.py:a", "b": {"path": "./g.py:b"}', "g.py": AGENT},
            "has 2 graphs: a, b; name one, as in {}/g.py:a",
        ),
    ],
)
def test_where_several_may_be_meant_they_are_listed(texts: dict[str, str], says: str, tmp_path: Path) -> None:
    folder = files(tmp_path / "trip", **texts)
    with pytest.raises(BadCrew) as raised:
        parse_target(str(folder))
    assert str(raised.value) == f"{folder} " + says.replace("{}", str(folder))
