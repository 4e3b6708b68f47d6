"""A run's first checkpoint that comes while another run prunes: it is in flight, at whichever moment it came."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.core import fault_points
from runner.providers import BaseProvider, JsonProvider, SqliteProvider, inflight, sqlite
from runner.testing.writers import ids_of, over, write_line


@pytest.fixture(params=["json", "sqlite"])
def place(request: Any, tmp_path: Path) -> Iterator[tuple[BaseProvider, str]]:
    """In Redis, a prune is one script."""
    of_json = (JsonProvider(), str(tmp_path / "kept"))
    provider, location = of_json if request.param == "json" else (SqliteProvider(), str(tmp_path / "kept.db"))
    yield provider, location
    over(provider, location)


def left(tmp_path: Path) -> list[str]:
    return [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".live")]


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("is_before", [False, True])
def test_what_others_write_while_their_marks_are_looked_at(
    place: tuple[BaseProvider, str], has_begun: bool, is_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, location = place
    theirs = write_line(provider, location, name="theirs", count=int(has_begun), keep=9)
    ours = write_line(provider, location, name="ours", count=3, keep=3)
    look = inflight.marked

    def others() -> None:
        parent = theirs[-1] if theirs else None
        monkeypatch.setattr(inflight, "marked", look)
        with contextlib.suppress(sqlite3.OperationalError):  # locked out until the prune is over: as good
            theirs.extend(write_line(provider, location, name="theirs", count=2, parent_id=parent, keep=9))

    def marked(prefix: str) -> set[str]:
        if is_before:
            others()
            return look(prefix)
        found = look(prefix)
        others()
        return found

    monkeypatch.setattr(sqlite, "_PATIENCE", 0)
    monkeypatch.setattr(inflight, "marked", marked)
    provider.prune(location, 3, head=ours[-1])
    assert sorted(ids_of(provider.checkpoints(location))) == sorted(ours + theirs), "they neither go nor count"


def test_a_write_that_fails_leaves_no_mark(
    place: tuple[BaseProvider, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, location = place

    def reached(point: str) -> None:
        if point == "checkpoint named, not told":
            assert left(tmp_path), "marked by now"
            raise OSError("no more space")

    monkeypatch.setattr(fault_points, "reached", reached)
    with pytest.raises(OSError, match="no more space"), inflight.marking_ahead():
        provider.checkpoint("{}", location)
    assert not left(tmp_path)


def test_who_is_no_run_marks_nothing(place: tuple[BaseProvider, str], tmp_path: Path) -> None:
    provider, location = place
    provider.checkpoint(json.dumps({"i": 1}), location)
    assert not left(tmp_path)


def test_a_provider_may_spell_the_location_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Absolute(JsonProvider):
        def checkpoint(self, *args: Any, **kwargs: Any) -> str:
            return str(Path(super().checkpoint(*args, **kwargs)).resolve())

    monkeypatch.chdir(tmp_path)
    provider = Absolute()
    with inflight.marking_ahead():
        where = provider.checkpoint("{}", "kept")
        provider.hold(where)
    assert left(tmp_path) == [f".{provider.extract_id(where)}.live"]
    provider.release(where)
    assert not left(tmp_path)
