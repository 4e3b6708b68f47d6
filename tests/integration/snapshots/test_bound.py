"""``max_checkpoints`` is a bound on what a branch holds: however many kickoffs, objects and processes write there."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, JsonProvider, SqliteProvider, Task
from runner.providers.base import BaseProvider
from runner.providers.redis.provider import RedisProvider
from runner.testing import RedisServer, eventually

from ...support.interpreters import ran, started

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["json", "sqlite", "redis"])
def place(request: Any, tmp_path: Path) -> tuple[BaseProvider, str]:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("server")
        return RedisProvider(), f"{server.url}?prefix=cr"
    if request.param == "sqlite":
        return SqliteProvider(), str(tmp_path / "kept.db")
    return JsonProvider(), str(tmp_path / "kept")


def crew(place: tuple[BaseProvider, str], keep: int = 2, run: Any = lambda ctx: "A", tasks: int = 3) -> Crew:
    config = CheckpointConfig(provider=place[0], location=place[1], max_checkpoints=keep)
    return Crew(tasks=[Task(name=f"t{i}", run=run) for i in range(tasks)], checkpoint=config)


def kept(place: tuple[BaseProvider, str]) -> list[str]:
    return [one.id for one in place[0].checkpoints(place[1])]


def test_a_new_crew_for_each_kickoff(place: tuple[BaseProvider, str]) -> None:
    seen: list[str] = []
    for _ in range(4):
        crew(place).kickoff()
        assert len(kept(place)) == 2
        assert not set(kept(place)) & set(seen), "the newest"
        seen += kept(place)


def test_a_new_process_for_each_kickoff(place: tuple[BaseProvider, str]) -> None:
    for _ in range(3):
        ran("-c", ONE, place[1])
        assert len(kept(place)) == 2


def test_the_same_location_to_go_on_from_and_to_write_to(place: tuple[BaseProvider, str]) -> None:
    for _ in range(4):
        again = crew(place, keep=3)
        again.checkpoint = again.checkpoint.model_copy(update={"restore_from": place[1]})
        again.kickoff()
        assert len(kept(place)) <= 3


def test_what_is_in_flight_is_left_alone_and_counts_when_it_is_over(place: tuple[BaseProvider, str]) -> None:
    """A kickoff in the middle of another one's: its own are not pruned, and at the end the bound holds."""
    between: list[list[str]] = []

    def others(ctx: Any) -> str:
        if ctx.task.name == "t2":
            mine = kept(place)
            for _ in range(3):
                ran("-c", ONE, place[1])
                now = kept(place)
                assert now[: len(mine)] == mine, "another process does not prune them"
                between.append(now[len(mine) :])
        return "A"

    crew(place, run=others).kickoff()
    assert [len(ids) for ids in between] == [2, 2, 2], "those that are over have their bound"
    assert len(kept(place)) == 2


ONE = """
import sys
from runner import CheckpointConfig, Crew, Task
from runner.providers.detect import detect_provider
config = CheckpointConfig(provider=detect_provider(sys.argv[1]), location=sys.argv[1], max_checkpoints=2)
Crew(tasks=[Task(name=f"t{i}", run=lambda ctx: "A") for i in range(3)], checkpoint=config).kickoff()
"""

HELD = """
import sys, time
from runner import CheckpointConfig, Crew, Task
from runner.providers.detect import detect_provider
from runner.providers.redis import provider
provider.LEASE = 5.0  # where it is in Redis it is known to be dead this soon
def run(ctx):
    if ctx.task.name == "t2":
        print("held", flush=True)
        sys.stdin.readline()
    return "A"
config = CheckpointConfig(provider=detect_provider(sys.argv[1]), location=sys.argv[1], max_checkpoints=2)
Crew(tasks=[Task(name=f"t{i}", run=run) for i in range(3)], checkpoint=config).kickoff()
"""


def test_a_killed_process_is_in_flight_no_more(place: tuple[BaseProvider, str]) -> None:
    child = started("-c", HELD, place[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    theirs = kept(place)
    crew(place).kickoff()
    assert kept(place)[:2] == theirs
    assert len(kept(place)) == 4
    child.kill()
    child.communicate()

    def bounded() -> bool:
        crew(place).kickoff()
        return len(kept(place)) == 2

    eventually(bounded, within=60, why="what it left counts")


WRITTEN = """
import sys
from runner import CheckpointConfig, Crew, Task
from runner.providers.detect import detect_provider
location = sys.argv[1]
class Slow(type(detect_provider(location))):
    def checkpoint(self, data, location, *, parent_id=None, branch="main"):
        where = super().checkpoint(data, location, parent_id=parent_id, branch=branch)
        print("written", flush=True)
        sys.stdin.readline()
        return where
config = CheckpointConfig(provider=Slow(), location=location, max_checkpoints=2)
Crew(tasks=[Task(name=f"t{i}", run=lambda ctx: "A") for i in range(3)], checkpoint=config).kickoff()
"""


def test_the_first_checkpoint_of_a_run_is_left_alone_from_its_first_moment(place: tuple[BaseProvider, str]) -> None:
    """The other run has written it, and knows nothing of that yet; with a subclass of the provider."""
    child = started("-c", WRITTEN, place[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    [first] = kept(place)
    crew(place).kickoff()
    assert kept(place)[0] == first
    assert len(kept(place)) == 3
    child.communicate(b"\n" * 3, timeout=60)
    assert child.returncode == 0
    assert len(kept(place)) == 2, "it is over, and counts"


def test_nothing_is_left_beside_the_checkpoints(place: tuple[BaseProvider, str], tmp_path: Path) -> None:
    crew(place).kickoff()
    assert not [path for path, _, names in os.walk(tmp_path) for name in names if name.endswith(".live")]
