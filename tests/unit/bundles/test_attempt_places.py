"""Where an attempt has its folder: at one path for each task, held while it is at work."""

import os
from pathlib import Path

import pytest

from runner.bundles import attempt_places
from runner.bundles.attempt_places import sweep, take
from runner.core.jobs import Job


def job(branch: str) -> Job:
    return Job("r-1", branch, "task", 1)


def test_each_attempt_at_a_task_has_the_same_path_and_begins_empty(tmp_path: Path) -> None:
    first = take("store", tmp_path, job("main"))
    (first.folder / "half-written").write_text("by an attempt that is killed")
    os.close(first.handle)  # as its process's end does
    second = take("store", tmp_path, job("main"))
    assert second.folder == first.folder
    assert list(second.folder.iterdir()) == []
    others = {take(*other).folder for other in [("store", tmp_path, job("fork")), ("2", tmp_path, job("main"))]}
    assert len(others | {second.folder}) == 3
    second.leave()
    assert not second.folder.parent.exists()


def test_an_attempt_that_lost_its_claim_and_lives_keeps_its_folder(tmp_path: Path) -> None:
    frozen = take("store", tmp_path, job("job"))
    (frozen.folder / "own").write_text("")
    new = take("store", tmp_path, job("job"))
    assert new.folder != frozen.folder
    assert [path.name for path in frozen.folder.iterdir()] == ["own"]
    frozen.leave()
    assert new.folder.is_dir()


def test_what_no_process_holds_is_swept(tmp_path: Path) -> None:
    killed, alive = take("a", tmp_path, job("killed")), take("b", tmp_path, job("alive"))
    (killed.folder / "x").write_text("")
    os.close(killed.handle)
    old, new = (tmp_path / "work/5f2a" / worker for worker in ("old", "new"))  # as an older version made them
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    sweep(tmp_path)
    assert list(tmp_path.glob("attempts/*")) == [alive.folder.parent.parent]
    assert list(tmp_path.glob("attempts/*/*")) == [alive.folder.parent]
    assert list(tmp_path.glob("work/*/*")) == [new]


def test_a_folder_that_is_swept_just_now_is_no_attempt_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, swept = attempt_places.fcntl.flock, []

    def lock(handle: int, how: int) -> None:
        if not swept:
            swept.append(True)
            sweep(tmp_path)  # between opening it and locking it
        flock(handle, how)

    monkeypatch.setattr(attempt_places.fcntl, "flock", lock)
    assert take("store", tmp_path, job("job")).folder.is_dir()
    assert swept


class TestHidden:
    """A cache below a hidden folder, as the default is: LlamaIndex's readers pass over all that is in one."""

    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "public").mkdir(mode=0o755)
        monkeypatch.setattr(attempt_places, "PUBLIC", tmp_path / "public")
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
            own.mkdir(mode=0o755 if how == "open to others" else 0o700)
        if how == "of another user":
            user = os.geteuid()
            own.rename(own.with_name(f"crew-runner-{user + 1}"))
            monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        elif how == "around":
            own.parent.chmod(0o777)
        elif how == "noexec":
            monkeypatch.setattr(os, "statvfs", lambda path: type("Found", (), {"f_flag": os.ST_NOEXEC}))
        assert take("store", cache, job("job")).folder.is_relative_to(cache)
