"""Where an attempt has its folder: at one path for each task, held while it is at work."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.bundles import attempt_folders
from runner.bundles.attempt_folders import PATIENCE, HeldFolder, sweep, take
from runner.core import file_locks, processes
from runner.core.jobs import Job
from runner.testing import eventually

from ...support.interpreters import started

NOBODY = 65534


def job(branch: str) -> Job:
    return Job("r-1", branch, "task", 1)


def killed(place: HeldFolder) -> None:
    """As the end of its process does it."""
    attempt_folders._let_go(place.handle)


class HeldUp:
    """A clock whose sleepers call ``meanwhile``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HeldUp:
    monkeypatch.setattr(attempt_folders, "SYSTEM", clock := HeldUp())
    return clock


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user whom the modes of files bind, as who runs this."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()
    if not user:
        os.chown(folder, NOBODY, -1)
        os.seteuid(NOBODY)
    yield folder
    os.seteuid(user)
    shutil.rmtree(folder)


def test_each_attempt_at_a_task_has_the_same_path_and_begins_empty(tmp_path: Path) -> None:
    first = take("store", tmp_path, job("main"))
    (first.folder / "half-written").write_text("by an attempt that is killed")
    killed(first)
    second = take("store", tmp_path, job("main"))
    assert second.folder == first.folder
    assert list(second.folder.iterdir()) == []
    others = {take(*other).folder for other in [("store", tmp_path, job("fork")), ("2", tmp_path, job("main"))]}
    assert len(others | {second.folder}) == 3
    second.leave()
    assert not second.folder.parent.exists()


def test_an_attempt_that_is_about_to_leave_is_waited_for(tmp_path: Path, clock: HeldUp) -> None:
    handing_over = take("store", tmp_path, job("job"))
    clock.meanwhile = handing_over.leave
    assert take("store", tmp_path, job("job")).folder == handing_over.folder


def test_the_next_attempt_does_not_wait_until_all_is_deleted(
    tmp_path: Path, clock: HeldUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later, delete = take("store", tmp_path, job("job")), [], attempt_folders._delete

    def deleted(folder: Path) -> None:
        later.append(take("store", tmp_path, job("job")))
        (later[0].folder / "own").write_text("")
        delete(folder)

    (first.folder / "big").write_text("")
    monkeypatch.setattr(attempt_folders, "_delete", deleted)
    first.leave()
    assert [place.folder for place in later] == [first.folder]
    assert clock.now == 0
    assert [path.name for path in first.folder.iterdir()] == ["own"]
    assert list(tmp_path.glob("attempts/*/*")) == [first.folder.parent]


def test_an_attempt_that_lost_its_claim_and_lives_keeps_its_folder(tmp_path: Path, clock: HeldUp) -> None:
    frozen = take("store", tmp_path, job("job"))
    (frozen.folder / "own").write_text("")
    new = take("store", tmp_path, job("job"))
    assert new.folder != frozen.folder
    assert [path.name for path in frozen.folder.iterdir()] == ["own"]
    assert clock.now >= PATIENCE, "it may be about to leave"
    frozen.leave()
    assert new.folder.is_dir()


@pytest.mark.slow  # it forks
def test_what_a_task_forked_holds_nothing_when_the_attempt_is_killed(tmp_path: Path, clock: HeldUp) -> None:
    read, write = os.pipe()
    if not (attempt := os.fork()):  # a pool's child, which is killed
        try:
            place = take("store", tmp_path, job("job"))
            if not os.fork():  # of a ProcessPoolExecutor of its task
                place.leave()  # as one does that returns from there into the runner's code
            os.write(write, f"{os.getpid()}\n".encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    orphan = 0
    try:
        with os.fdopen(read) as said:
            orphan = next(pid for pid in (int(said.readline()), int(said.readline())) if pid != attempt)
        held = take("store", tmp_path, job("job"))
        assert held.folder.parent.name.endswith("-2"), "what was forked took nothing from the attempt"
        held.leave()
        os.kill(attempt, signal.SIGKILL)
        os.waitpid(attempt, 0)
        attempt = clock.now = 0
        assert f"{take('store', tmp_path, job('job')).folder.parent}-2" == str(held.folder.parent)
        assert clock.now == 0
    finally:
        for pid in filter(None, (attempt, orphan)):
            os.kill(pid, signal.SIGKILL)


def test_what_is_read_only_is_deleted(users: Path) -> None:
    def fill(place: HeldFolder) -> None:
        for folder in (place.folder / "go" / "mod", place.folder / "shut" / "in"):
            folder.mkdir(parents=True)
            (folder / "x").write_text("")
        outside = users / "outside"
        outside.mkdir(exist_ok=True)
        outside.chmod(0o500)
        (place.folder / "link").symlink_to(outside)
        for folder, mode in (("go/mod", 0o500), ("go", 0o500), ("shut", 0o000), ("", 0o500)):
            (place.folder / folder).chmod(mode)

    fill(first := take("store", users, job("job")))
    killed(first)
    second = take("store", users, job("job"))
    assert second.folder == first.folder
    assert list(second.folder.parent.iterdir()) == [second.folder]
    assert list(second.folder.iterdir()) == []
    fill(second)
    second.leave()
    assert list(users.glob("attempts/*/*")) == []
    fill(third := take("store", users, job("job")))
    killed(third)
    sweep(users)
    assert list(users.glob("attempts/*")) == []
    assert (users / "outside").stat().st_mode & 0o777 == 0o500


def test_what_cannot_be_deleted_is_in_no_attempt_s_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda folder, ignore_errors: None)  # as for what is another user's
    (first := take("store", tmp_path, job("job"))).folder.joinpath("x").write_text("")
    killed(first)
    second = take("store", tmp_path, job("job"))
    assert second.folder == first.folder
    assert list(second.folder.iterdir()) == []
    second.leave()
    third = take("store", tmp_path, job("job"))
    assert third.folder == first.folder
    killed(third)
    sweep(tmp_path)
    there = set(tmp_path.glob("attempts/*/*"))
    assert len(there) == 2
    sweep(tmp_path)
    assert set(tmp_path.glob("attempts/*/*")) == there, "under the same names"


def test_what_no_process_holds_is_swept(tmp_path: Path) -> None:
    dead, alive = take("a", tmp_path, job("killed")), take("b", tmp_path, job("alive"))
    (dead.folder / "x").write_text("")
    killed(dead)
    old, new = (tmp_path / "work/5f2a" / worker for worker in ("old", "new"))  # as an older version made them
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    sweep(tmp_path)
    assert list(tmp_path.glob("attempts/*")) == [alive.folder.parent.parent]
    assert list(tmp_path.glob("attempts/*/*")) == [alive.folder.parent]
    assert list(tmp_path.glob("work/*/*")) == [new]


def test_a_folder_that_is_swept_just_now_is_no_attempt_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, swept = attempt_folders.fcntl.flock, []

    def lock(handle: int, how: int) -> None:
        if not swept:
            swept.append(True)
            sweep(tmp_path)  # between opening it and locking it
        flock(handle, how)

    monkeypatch.setattr(attempt_folders.fcntl, "flock", lock)
    assert take("store", tmp_path, job("job")).folder.is_dir()
    assert swept


class TestHidden:
    """A cache below a hidden folder, as the default is: LlamaIndex's readers pass over all that is in one."""

    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "public").mkdir(mode=0o755)
        monkeypatch.setattr(attempt_folders, "PUBLIC", tmp_path / "public")
        return tmp_path / ".cache" / "crew-runner"

    @staticmethod
    def own(tmp_path: Path) -> Path:
        return tmp_path / "public" / f"crew-runner-{os.geteuid()}"

    def test_attempts_are_in_a_folder_of_the_user_s_own_that_is_not(self, cache: Path, tmp_path: Path) -> None:
        (place := take("store", cache, job("job")).folder).joinpath("x").write_text("")
        assert place.is_relative_to(self.own(tmp_path))
        assert not any(part.startswith(".") for part in place.parts)
        assert self.own(tmp_path).stat().st_mode & 0o777 == 0o700
        link = tmp_path / "cache"
        cache.mkdir(parents=True)
        link.symlink_to(cache)
        assert take("store", link, job("other")).folder.is_relative_to(self.own(tmp_path)), "a link to a hidden folder"

    @pytest.mark.parametrize("how", ["of another user", "open to others", "a link", "a file", "around", "noexec"])
    def test_they_stay_in_the_cache_where_others_could_reach_in(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        own = self.own(tmp_path)
        if how == "a link":
            (tmp_path / "theirs").mkdir(mode=0o700)
            own.symlink_to(tmp_path / "theirs")
        elif how == "a file":
            own.write_text("")
        else:
            own.mkdir()
            own.chmod(0o755 if how == "open to others" else 0o700)  # whatever the umask is
        if how == "of another user":
            user = os.geteuid()
            own.rename(own.with_name(f"crew-runner-{user + 1}"))
            monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        elif how == "around":
            own.parent.chmod(0o777)
        elif how == "noexec":
            monkeypatch.setattr(os, "statvfs", lambda path: type("Found", (), {"f_flag": os.ST_NOEXEC}))
        assert take("store", cache, job("job")).folder.is_relative_to(cache)


HOLDS = """
import sys, pathlib
from runner.bundles.attempt_folders import take
from runner.core import file_locks, processes
from runner.core.jobs import Job
from runner.testing import eventually
take("store", pathlib.Path(sys.argv[1]), Job("r-1", "job", "task", 1))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(not file_locks.LOCKS.exists(), reason="the kernel does not say who holds a lock")
def test_one_whose_process_stands_still_is_not_waited_for(tmp_path: Path, clock: HeldUp) -> None:
    with started("-c", HOLDS, tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == "held\n"
        (held,) = [path for path in tmp_path.glob("attempts/*/*") if path.is_dir()]
        assert file_locks.holder(held) == frozen.pid
        frozen.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: processes.state(frozen.pid) == "T", why="it stands still")
            assert take("store", tmp_path, job("job")).folder.parent.name.endswith("-2")
            assert clock.now == 0.0
        finally:
            frozen.kill()
    assert file_locks.holder(held) == 0
