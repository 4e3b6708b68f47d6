"""What a run keeps on a machine beside the store."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.home import HOME, STORAGE, UNUSED, Home, homes, show_through, sweep

PARENTS = {"main": "", "fork": "main", "fork/2": "fork"}


@pytest.fixture
def home(tmp_path: Path) -> Callable[..., Home]:
    return lambda branch="main", run="r-1": Home(tmp_path, run, branch, PARENTS.__getitem__, lambda runs: runs)


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
    assert list(made.parent.iterdir()) == [made]


def test_those_of_runs_that_are_gone_go_when_they_were_not_used_for_long(tmp_path: Path) -> None:
    asked: list[str] = []

    def known(runs: list[str]) -> list[str]:
        asked.extend(runs)
        return ["r-there"]

    sweep(tmp_path / "none", known)
    for name, age in (("r-gone", 2 * UNUSED), ("r-there", 2 * UNUSED), ("r-new", 0)):
        (tmp_path / name / "main").mkdir(parents=True)
        at = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (at, at))
    sweep(tmp_path, known)
    assert sorted(asked) == ["r-gone", "r-there"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-new", "r-there"]


def test_the_owners_home_shows_through_but_for_what_is_kept_apart(tmp_path: Path) -> None:
    real, own = tmp_path / "real", tmp_path / "own"
    own.mkdir()
    for name in (".aws/credentials", ".config/crewai/settings.json", ".config/gh/hosts", ".crewai/old"):
        (real / name).parent.mkdir(parents=True)
        (real / name).write_text("theirs")
    (own / ".aws").mkdir()  # the run made one before
    for _ in range(2):
        show_through(real, own, (".crewai", ".config/crewai"))
    assert (own / ".config/gh/hosts").read_text() == "theirs"
    assert not (own / ".config/crewai").exists()
    assert not (own / ".crewai").exists()
    assert list((own / ".aws").iterdir()) == []
    show_through(tmp_path / "none", own, ())


def test_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNER_SHARED_DIR", raising=False)
    one, other = (homes(url, tmp_path) for url in ("redis://one", "redis://other"))
    assert one != other
    assert one.parent == other.parent == tmp_path / "runs"
    monkeypatch.setenv("RUNNER_SHARED_DIR", "/shared")
    assert homes("redis://one", tmp_path) == Path("/shared/runs")
