"""What a run keeps on a machine beside the store."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.bundles.run_dir import HOME, OF_OTHERS, STORAGE, UNUSED, Home, homes, overlay, sweep

PARENTS = {"main": "", "fork": "main", "fork/2": "fork"}


@pytest.fixture
def home(tmp_path: Path) -> Callable[..., Home]:
    return lambda branch="main", run="r-1": Home(
        tmp_path, "here/0", run, branch, PARENTS.__getitem__, lambda runs: runs
    )


def test_tasks_of_a_branch_have_one_in_common(home: Callable[..., Home]) -> None:
    made = home().made()
    assert sorted(path.name for path in made.iterdir()) == [HOME, STORAGE]
    assert made.stat().st_mode & 0o077 == 0
    (made / STORAGE / "kept").touch()
    assert (home().made() / STORAGE / "kept").exists()
    assert not (home(run="r-2").made() / STORAGE / "kept").exists()


def test_a_fork_begins_with_what_was_there_and_goes_on_for_itself(home: Callable[..., Home]) -> None:
    kept = home().made() / STORAGE / "kept"
    kept.write_text("main")
    # of a branch that had no task here, what its parent has
    of_fork = home("fork/2").made() / STORAGE / "kept"
    assert of_fork.read_text() == "main"
    of_fork.write_text("fork")
    assert kept.read_text() == "main"
    kept.write_text("later")
    assert (home("fork/2").made() / STORAGE / "kept").read_text() == "fork"


def test_two_tasks_that_are_first_at_once(home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def second(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        (home().made() / STORAGE / "kept").touch()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second)
    made = home().made()
    assert (made / STORAGE / "kept").exists()
    assert sorted(path.name for path in made.parent.iterdir()) == [".store", "main"]


def test_those_of_runs_that_are_gone_go_when_they_were_not_used_for_long(tmp_path: Path) -> None:
    asked: list[str] = []

    def known(runs: list[str]) -> list[str]:
        asked.extend(runs)
        return ["r-there"]

    sweep(tmp_path / "none", "one/0", known)
    for name, age in (("r-gone", 2 * UNUSED), ("r-there", 2 * UNUSED), ("r-new", 0)):
        made_by("one/0", tmp_path, name, age)
    sweep(tmp_path, "one/0", known)
    assert sorted(asked) == ["r-gone", "r-there"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-new", "r-there"]


def made_by(store: str, homes: Path, run: str, age: float) -> None:
    Home(homes, store, run, "main", PARENTS.__getitem__, lambda runs: runs).made()
    at = (homes / run).stat().st_mtime - age
    os.utime(homes / run, (at, at))


def test_those_of_another_store_go_by_their_age_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two stores whose fleets share a folder: each took away what the other's runs keep.
    monkeypatch.setenv("RUNNER_SHARED_DIR", str(tmp_path))
    shared = homes("one/0", tmp_path)
    made_by("other/0", shared, "r-used", 2 * UNUSED)
    made_by("other/0", shared, "r-old", 2 * OF_OTHERS)
    sweep(shared, "one/0", lambda runs: [])
    assert [path.name for path in shared.iterdir()] == ["r-used"]
    # and on one machine, of a store for which no worker is there any more
    monkeypatch.delenv("RUNNER_SHARED_DIR")
    one, other = (homes(store, tmp_path) for store in ("one/0", "other/0"))
    made_by("other/0", other, "r-used", 2 * UNUSED)
    made_by("other/0", other, "r-old", 2 * OF_OTHERS)
    sweep(one, "one/0", lambda runs: [])
    assert [path.name for path in other.iterdir()] == ["r-used"]


def test_the_owners_home_shows_through_but_for_what_is_kept_apart(tmp_path: Path) -> None:
    real, own = tmp_path / "real", tmp_path / "own"
    own.mkdir()
    for name in (".aws/credentials", ".config/crewai/settings.json", ".config/gh/hosts", ".crewai/old"):
        (real / name).parent.mkdir(parents=True)
        (real / name).write_text("theirs")
    (own / ".aws").mkdir()  # the run made one before
    for _ in range(2):
        overlay(real, own, (".crewai", ".config/crewai"))
    assert (own / ".config/gh/hosts").read_text() == "theirs"
    assert not (own / ".config/crewai").exists()
    assert not (own / ".crewai").exists()
    assert list((own / ".aws").iterdir()) == []
    overlay(tmp_path / "none", own, ())


def test_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNER_SHARED_DIR", raising=False)
    one, other = (homes(store, tmp_path) for store in ("one:6379/0", "other:6379/0"))
    assert one != other
    assert one.parent == other.parent == tmp_path / "runs"
    monkeypatch.setenv("RUNNER_SHARED_DIR", "/shared")
    assert homes("one:6379/0", tmp_path) == Path("/shared/runs")
