"""``runner checkpoint resume | fork | prune`` where no screen is: on files and an SQLite file."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from runner.providers.json import JsonProvider
from runner.providers.sqlite import SqliteProvider

CREW = """
from pathlib import Path
from runner import CheckpointConfig, Crew, Task

def note(name):
    def run(ctx):
        with open("done.txt", "a") as file:
            file.write(f"{name} of {ctx.inputs['topic']}\\n")
        return f"{name} of {ctx.inputs['topic']}"
    return run

crew = Crew(name="barnyard", tasks=[Task(name=one, description="{topic}", run=note(one)) for one in ("a", "b", "c")],
            checkpoint=CheckpointConfig(location="LOCATION", provider=PROVIDER()))
if __name__ == "__main__":
    crew.kickoff(inputs={"topic": "birds"})
"""


@pytest.fixture(params=["JsonProvider", "SqliteProvider"])
def kept(request: pytest.FixtureRequest, cli: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A location with the three checkpoints of a kickoff, and its crew beside it in ``crew.py``."""
    where = "kept" if request.param == "JsonProvider" else "kept.db"
    text = CREW.replace("LOCATION", where).replace("PROVIDER", request.param)
    Path("crew.py").write_text(f"from runner import {request.param}\n{text}")
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(Path("crew.py").read_text(), "crew.py", "exec"), scope)
    Path("done.txt").unlink()
    return where


def ids(cli: Any, where: str, branch: str = "main") -> list[str]:
    found = json.loads(cli("checkpoint", "list", where, "--branch", branch, "--json").out)
    return [one["id"] for one in found]


def test_resume_does_what_is_left(cli: Any, kept: str) -> None:
    first = ids(cli, kept)[0]
    said = cli("checkpoint", "resume", kept, first, "--crew", "crew.py")
    assert (said.code, said.out) == (0, "c of birds\n"), said.err
    assert said.err.splitlines()[0] == f"resume from {first} (main)"
    assert Path("done.txt").read_text() == "b of birds\nc of birds\n"
    told = json.loads(cli("checkpoint", "resume", kept, "--crew", "crew.py", "--json").out)
    assert (told["verb"], told["result"]) == ("resume", "c of birds")


def test_fork_takes_inputs_and_outputs(cli: Any, kept: str) -> None:
    said = cli(
        "checkpoint", "fork", kept, ids(cli, kept)[1], "--crew", "crew.py", "--branch", "owls",
        "--input", "topic=owls", "--edit", "a=other",
    )  # fmt: skip
    assert (said.code, said.out) == (0, "c of owls\n"), said.err
    assert Path("done.txt").read_text() == "b of owls\nc of owls\n"
    assert ids(cli, kept, "owls")
    again = cli("checkpoint", "fork", kept, "--crew", "crew.py", "--branch", "owls")
    assert (again.code, again.error) == (2, "branch 'owls' already exists: choose another name")


def test_a_fork_without_a_branch_is_given_a_name(cli: Any, kept: str) -> None:
    said = cli("checkpoint", "fork", kept, "--crew", "crew.py", "--input", "topic=owls")
    assert (said.code, said.out) == (0, "c of owls\n"), said.err
    newest = ids(cli, kept)[-1]
    branches = {one["branch"] for one in json.loads(cli("checkpoint", "list", kept, "--json").out)}
    [made] = branches - {"main"}
    assert made.startswith(f"fork/{newest}_")


def test_what_needs_code_says_so(cli: Any, kept: str) -> None:
    said = cli("checkpoint", "resume", kept)
    line = f"to resume or fork them, name their crew: runner checkpoint resume {kept} --crew crew.py"
    assert (said.code, said.error) == (2, line)


@pytest.mark.parametrize("age", ["7", "d", "7 d", "-1d", "7w", "0.5h"])
def test_an_age_that_is_none(refused: Any, age: str) -> None:
    line = refused("checkpoint", "prune", "x", f"--older-than={age}")
    assert line.startswith(f"invalid value for '--older-than': {age!r} is not an age such as 7d, 24h, 30m or 90s")


def aged(provider: Any, where: str) -> None:
    """Three checkpoints on main of which two are ten days old, as a name tells, and one on another branch."""
    for branch in ("main", "main", "main", "side"):
        provider.checkpoint("{}", where, branch=branch)
    old = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() - 10 * 86_400))
    for path in sorted(Path(where, "main").iterdir())[:2]:
        path.rename(path.with_name(old + path.name[len(old) :]))


def test_prune_by_age(cli: Any) -> None:
    aged(JsonProvider(), "kept")
    tried = cli("checkpoint", "prune", "kept", "--older-than", "7d", "--dry-run")
    assert (tried.code, tried.out) == (0, "main: 2 would be removed\nside: 0 would be removed\n")
    assert len(ids(cli, "kept")) == 3
    assert json.loads(cli("checkpoint", "prune", "kept", "--older-than", "20d", "--json").out)["removed"] == 0
    told = json.loads(cli("checkpoint", "prune", "kept", "--keep", "1", "--dry-run", "--json").out)
    assert told == {"removed": 2, "branches": {"main": 2, "side": 0}, "dry_run": True}
    both = cli("checkpoint", "prune", "kept", "--keep", "2", "--older-than", "7d", "--branch", "main")
    assert (both.code, both.out) == (0, "main: 2 removed\n")
    assert len(ids(cli, "kept")) == len(ids(cli, "kept", "side")) == 1


def test_prune_wants_to_know_what(refused: Any) -> None:
    assert refused("checkpoint", "prune", "x") == "choose what to remove: --keep N, or --older-than AGE"


def test_prune_in_sqlite_by_age(cli: Any) -> None:
    SqliteProvider().checkpoint("{}", "kept.db")
    assert cli("checkpoint", "prune", "kept.db", "--older-than", "1h").out == "main: 0 removed\n"
    assert cli("checkpoint", "prune", "kept.db", "--older-than", "0s").out == "main: 1 removed\n"
