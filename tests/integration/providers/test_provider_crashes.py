"""A process is killed while it writes checkpoints: the newest whole one is used, and nothing torn is taken for one."""

import contextlib
import fcntl
import itertools
import json
import logging
import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest

from runner.core.errors import StoreUnreachable
from runner.core.fault_points import CrashPoint
from runner.providers import (
    BaseProvider,
    CheckpointNotFound,
    CheckpointTorn,
    JsonProvider,
    RedisProvider,
    SqliteProvider,
    detect_provider,
)

from ...support.interpreters import started
from ...support.soak import in_soak

KEEP = 5

#: Writes a line of checkpoints, tells each when it is written, and goes on until it is killed.
WRITER = """
import json, sys
from runner.core import fault_points as crashpoints
from runner.providers import detect_provider

location, first, parent, keep, arm_at, setting = json.loads(sys.argv[1])
provider = detect_provider(location)
i = first
while True:
    if i == arm_at:
        crashpoints.arm(setting)
    data = json.dumps({"i": i, "tasks": [{"name": f"t{n}", "raw": f"{n} {i} " * 300} for n in range(i % 7 + 3)]})
    parent = provider.extract_id(provider.checkpoint(data, location, parent_id=parent))
    print(i, parent, flush=True)
    provider.prune(location, keep, head=parent)
    i += 1
"""

BEFORE = ("checkpoint begun, not whole", "checkpoint whole, not synced", "checkpoint synced, not named")
AFTER = "checkpoint named, not told"
PRUNING = "checkpoints pruned in part"
POINTS = {
    "json": [*BEFORE, AFTER, PRUNING],
    "sqlite": [*BEFORE[:2], AFTER, PRUNING],
    "redis": [BEFORE[0], AFTER],
}


@dataclass
class Place:
    """A location, and what was told of it by its writers."""

    provider: BaseProvider
    location: str
    told: list[tuple[int, str]] = field(default_factory=list)

    def start(self, arm_at: int = -1, setting: str = "", keep: int = KEEP) -> "subprocess.Popen[str]":
        first, parent = 0, None
        if self.told:
            newest = self.provider.latest(self.location)
            first, parent = self.read(newest.location)["i"] + 1, newest.id
        asked = json.dumps([self.location, first, parent, keep, first + arm_at, setting])
        return started("-c", WRITER, asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def listen(self, process: "subprocess.Popen[str]") -> int:
        """Hear the writer to its end. Returns the last that it told."""
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:  # not `communicate`, which knows nothing of lines read before
            said, errors = process.stdout.read(), process.stderr.read()
        assert process.wait() == -signal.SIGKILL, errors
        for line in said.splitlines(keepends=True):
            if line.endswith("\n"):  # the last one may be cut off
                i, checkpoint_id = line.split()
                self.told.append((int(i), checkpoint_id))
        return self.told[-1][0]

    def read(self, location: str) -> Any:
        return json.loads(self.provider.from_checkpoint(location))

    def whole(self) -> list[int]:
        """The numbers of all that stand there; each can be read, and they are in order."""
        infos = self.provider.checkpoints(self.location)
        assert all(info.complete for info in infos)
        found = [self.read(info.location)["i"] for info in infos]
        assert found == list(range(found[0], found[0] + len(found))), "an order was lost"
        for older, newer in itertools.pairwise(infos):
            assert newer.parent_id == older.id
        ids = dict(self.told)
        assert all(ids[i] == info.id for i, info in zip(found, infos, strict=True) if i in ids)
        return found


@pytest.fixture(params=list(POINTS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "redis":
        return Place(RedisProvider(), f"{request.getfixturevalue('server').url}?prefix=p")
    if request.param == "json":
        return Place(JsonProvider(), str(tmp_path / "checkpoints"))
    return Place(SqliteProvider(), str(tmp_path / "checkpoints.db"))


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING, "runner.providers"):
        yield lambda: [record.getMessage() for record in caplog.records]


def test_every_point_is_tested() -> None:
    points = {point for point in get_args(CrashPoint) if point.startswith("checkpoint")}
    assert {point for of in POINTS.values() for point in of} == points


@pytest.mark.parametrize("point", [*BEFORE, AFTER, PRUNING])
def test_a_writer_dies_here(place: Place, point: str, tmp_path: Path, warnings: Any) -> None:
    if point not in POINTS[place.provider.provider_type]:
        return  # what it stores in does this in one
    for death in range(2):
        # Given a writer in the middle of its line, that is killed when it comes to this point
        flag = tmp_path / f"died {death}"
        told = place.listen(place.start(arm_at=KEEP + 3, setting=f"{point}:{flag}"))
        assert flag.exists()
        # Then the newest that stands there is the last one told, or the one after it
        newest = place.provider.latest(place.location)
        assert place.read(newest.location)["i"] == told + (point == AFTER)
        found = place.whole()
        assert found[-1] == place.read(newest.location)["i"]
        # and pruning goes on from where it was
        expected_left = KEEP + 1 if point in (AFTER, PRUNING) else KEEP
        assert len(found) == expected_left
        assert place.provider.prune(place.location, KEEP, head=newest.id) == expected_left - KEEP
        assert place.whole() == found[-KEEP:]
    assert warnings() == []


@pytest.mark.parametrize("keep", [1, KEEP, *in_soak(1000)])
def test_a_writer_dies_anywhere(place: Place, keep: int, warnings: Any) -> None:
    chance = random.Random(keep)
    for _ in range(4):
        process = place.start(keep=keep)
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 40)):
            line = process.stdout.readline()
            place.told.append((int(line.split()[0]), line.split()[1]))
        process.kill()
        told = place.listen(process)
        found = place.whole()
        assert found[-1] in (told, told + 1)
        assert len(found) in (min(keep, found[-1] + 1), min(keep + 1, found[-1] + 1))
        assert place.read(place.provider.latest(place.location).location)["i"] == found[-1]
    assert warnings() == []


# -- files torn by hand


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Three whole files."""
    provider = JsonProvider()
    state = {"tasks": [{"name": f"t{n}", "done": {"raw": "x" * 20}} for n in range(10)]}
    return [Path(provider.checkpoint(json.dumps({**state, "i": i}), str(tmp_path / "c"))) for i in range(3)]


def newest(three: list[Path]) -> int:
    provider = JsonProvider()
    location = str(three[0].parents[1])
    return int(json.loads(provider.from_checkpoint(provider.latest(location).location))["i"])


def test_a_file_cut_anywhere_is_not_taken(three: list[Path], warnings: Any) -> None:
    whole = three[2].read_bytes()
    end = len(whole.rstrip())
    for length in range(len(whole) + 1):
        three[2].write_bytes(whole[:length])
        assert newest(three) == (2 if length >= end else 1), length
    assert warnings() == [f"Checkpoint {three[2]} is torn: skipping it, looking for an older one"] * end


def test_a_file_indented_by_its_writer_and_cut_anywhere_is_not_taken(tmp_path: Path) -> None:
    provider = JsonProvider()
    data = json.dumps({"a": [{"b": {"c": [1, 2]}}] * 3, "i": 0}, indent=1)
    path = Path(provider.checkpoint(data, str(tmp_path)))
    whole = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(whole[:length])
        assert not provider.checkpoints(str(tmp_path))[0].complete, length


@pytest.mark.parametrize("content", [b"", b"\n\n", b"   ", b"\0" * 4096, b'{"i": "\xff\xfe', b"not JSON at all"])
def test_a_file_that_holds_nothing_of_use_is_not_taken(three: list[Path], content: bytes, warnings: Any) -> None:
    three[2].write_bytes(content)
    assert newest(three) == 1
    assert len(warnings()) == 1


def test_all_torn_is_nothing_found(three: list[Path], warnings: Any) -> None:
    for path in three:
        path.write_bytes(b"{")
    with pytest.raises(ValueError, match=f"Checkpoint not found: there is no complete one at {three[0].parents[1]}"):
        newest(three)
    assert len(warnings()) == 3


@pytest.mark.parametrize("content", [b"", b'{"i": 1', b'{"tasks": [{"raw": "\xff'])
def test_a_torn_file_named_by_a_person_says_so(three: list[Path], content: bytes) -> None:
    three[2].write_bytes(content)
    with pytest.raises(ValueError, match=r"is torn: .* is incomplete; restore from an older one"):
        JsonProvider().from_checkpoint(str(three[2]))


def test_a_whole_file_of_another_writer_is_taken(three: list[Path]) -> None:
    """CrewAI's end without our mark."""
    other = three[2].with_name("20990101T000000_ffffffff_p-none.json")
    other.write_text('{"i": 7}')
    assert newest(three) == 7


@pytest.mark.parametrize("prune", [False, True])
def test_what_a_dead_writer_left_is_no_checkpoint_and_goes(tmp_path: Path, prune: bool) -> None:
    provider, folder = JsonProvider(), tmp_path / "main"
    folder.mkdir()
    left, held = folder / ".20200101T000000_00000000.tmp", folder / ".20990101T000000_00000000.tmp"
    for path in (left, held):
        path.write_text('{"i": 9')
    assert provider.checkpoints(str(tmp_path)) == []
    with held.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        if prune:
            assert provider.prune(str(tmp_path), 3) == 0
        else:
            provider.checkpoint("{}", str(tmp_path))
        assert (left.exists(), held.exists()) == (False, True)


def test_a_file_that_was_swept_before_its_writer_locked_it_is_written_anew(
    three: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, swept = fcntl.flock, []

    def slow(fd: int, how: int) -> None:
        if not swept:
            swept.extend(three[0].parent.glob(".*.tmp"))
            swept[0].unlink()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    path = Path(JsonProvider().checkpoint('{"i": 3}', str(three[0].parents[1])))
    assert (newest(three), path.stem in swept[0].name) == (3, False)


def test_a_disk_that_is_full_leaves_nothing_half(three: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        JsonProvider().checkpoint("{}", str(three[0].parents[1]))
    monkeypatch.setattr(os, "fsync", real)
    assert sorted(three[0].parent.iterdir()) == sorted(three)


@pytest.mark.parametrize("keep", [0.95, 0.5, 0.1, 0.0, *in_soak(0.8, 0.3, 0.01)])
@pytest.mark.parametrize("pruned", [False, True])
def test_a_database_that_lost_its_end(tmp_path: Path, keep: float, pruned: bool, warnings: Any) -> None:
    provider = SqliteProvider()
    location = str(tmp_path / "c.db")
    parent, told = None, []
    for i in range(60):
        data = json.dumps({"i": i, "raw": f"{i} " * (20 if i % 3 else 3000)})
        parent = provider.extract_id(provider.checkpoint(data, location, parent_id=parent))
        told.append(parent)
        if pruned:
            provider.prune(location, 20)
    size = Path(location).stat().st_size
    with Path(location).open("r+b") as file:
        file.truncate(int(size * keep))
    assert isinstance(detect_provider(location), SqliteProvider)
    infos = provider.checkpoints(location)
    assert [info.id for info in infos] == [one for one in told if one in {info.id for info in infos}]
    readable = []
    for info in infos:
        with contextlib.suppress(CheckpointTorn, CheckpointNotFound):
            readable.append(json.loads(provider.from_checkpoint(info.location))["i"])
    if readable:
        found = provider.latest(location)
        assert json.loads(provider.from_checkpoint(found.location))["i"] == readable[-1]
    else:
        with pytest.raises(ValueError, match="Checkpoint not found"):
            provider.latest(location)
    assert warnings() or keep == 0 or readable[-1] == 59  # an empty file is a database with nothing in it


def test_a_database_that_is_none(tmp_path: Path, warnings: Any) -> None:
    path = tmp_path / "c.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(ValueError, match="Checkpoint not found: there is no complete one"):
        SqliteProvider().latest(str(path))
    assert "cannot be read" in warnings()[0]
    with pytest.raises(ValueError, match="is torn"):
        SqliteProvider().from_checkpoint(f"{path}#20200101T000000_00000000")


def test_a_database_that_may_not_be_opened_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "c.db").mkdir()
    here, there = SqliteProvider(), str(tmp_path / "c.db")
    for look, location in ((here.latest, there), (here.checkpoints, there), (here.from_checkpoint, f"{there}#x")):
        with pytest.raises(StoreUnreachable, match=r"c.db cannot be opened \(SQLite: unable to open database file\)"):
            look(location)


def test_a_database_is_read_where_nothing_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.db"
    at = SqliteProvider().checkpoint('{"i": 1}', str(path))
    monkeypatch.setattr("os.access", lambda *_: False)  # as on a file system that is read-only
    assert json.loads(SqliteProvider().from_checkpoint(at)) == {"i": 1}
    assert SqliteProvider().latest(str(path)).location == at
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.db"]


def test_a_table_made_by_crewai_is_gone_on_with(tmp_path: Path) -> None:
    """Its column holds SQLite's binary JSON, which an older SQLite cannot read, and says so."""
    path = str(tmp_path / "c.db")
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE checkpoints (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, parent_id TEXT, "
            "branch TEXT NOT NULL DEFAULT 'main', data JSONB NOT NULL)"
        )
        row = ("20260101T000000_ffffffff", "20260101T000000", None, "main", b"\x0c")
        database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", row)
    database.close()
    provider = SqliteProvider()
    old = provider.checkpoints(path)[0]
    if sqlite3.sqlite_version_info < (3, 45):
        with pytest.raises(ValueError, match=r"holds binary JSON, for SQLite 3\.45 or newer"):
            provider.from_checkpoint(old.location)
    own = provider.checkpoint('{"i": 1}', path, parent_id=old.id)
    assert provider.from_checkpoint(own) == '{"i": 1}'
    assert [info.id for info in provider.checkpoints(path)] == [old.id, provider.extract_id(own)]
    assert provider.prune(path, 1) == 1
