"""The folder of an attempt: what it begins with, and what of it is kept."""

import json
import os
from types import SimpleNamespace

import pytest

from runner.bundles import task_files
from runner.bundles.attempt_folders import take
from runner.bundles.task_files import LocalFiles, Workdir
from runner.client.files import files_of, write_files
from runner.core.errors import DiskTrouble, TaskError
from runner.core.jobs import Job


def job(branch: str) -> Job:
    return Job("r-1", branch, "task", 1)


@pytest.fixture
def original(tmp_path):
    folder = tmp_path / "original"
    (folder / "data").mkdir(parents=True)
    (folder / "data/x.csv").write_text("a,b\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def make(original, tmp_path):
    def make(*left, copied=True, keeps=lambda path: True):
        return Workdir(
            lambda: take("store", tmp_path, job("main")), lambda: (original if copied else None, left), keeps
        )

    return make


def test_it_is_a_copy_with_what_was_left_before(make, original):
    work = make({"data/x.csv": "changed", "new/y.bin": {"base64": "/wA="}}, {"run.sh": False, "late.txt": "é"})
    there = {p.relative_to(work.folder).as_posix(): p.read_bytes() for p in work.folder.rglob("*") if p.is_file()}
    assert there == {"data/x.csv": b"changed", "new/y.bin": b"\xff\x00", "late.txt": "é".encode()}
    assert work.changed() == {}
    assert (original / "data/x.csv").read_text() == "a,b\n"


def test_what_is_new_changed_or_gone_is_kept_and_the_original_stays(make, original):
    work = make()
    with (work.folder / "data/x.csv").open("r+") as file:  # in place, of the same size
        file.write("c,d\n")
    (work.folder / "new").mkdir()
    (work.folder / "new/y.bin").write_bytes(b"\xff\x00")
    (work.folder / "run.sh").unlink()
    assert work.changed() == {"data/x.csv": "c,d\n", "new/y.bin": {"base64": "/wA="}, "run.sh": False}
    assert (original / "data/x.csv").read_text() == "a,b\n"
    assert os.access(original / "run.sh", os.X_OK)


def test_since_a_mark_only_what_came_after_it(make):
    work = make(copied=False)
    (work.folder / "a").write_text("1")
    assert work.changed() == {"a": "1"}
    mark = work.mark()
    (work.folder / "b").write_text("2")
    assert work.changed(mark) == {"b": "2"}
    assert work.changed() == {"a": "1", "b": "2"}


def test_a_mark_has_noticed_what_was_written_before_it(make):
    work = make(copied=False)
    (work.folder / "a").write_text("1")
    mark = work.mark()
    (work.folder / "b").write_text("2")
    assert work.changed(mark) == {"b": "2"}
    assert work.noticed == work.mark()


def test_nothing_is_made_before_it_is_needed(make, tmp_path):
    work = make()
    assert (work.changed(), work.mark()) == ({}, 0)
    work.remove()
    assert not (tmp_path / "work").exists()


def test_what_may_not_be_stored_and_links_are_left_alone(make):
    work = make(keeps=lambda path: path != ".env")
    (work.folder / ".env").write_text("KEY=secret")
    (work.folder / "link").symlink_to("/etc/hostname")
    (work.folder / "__pycache__").mkdir()
    (work.folder / "__pycache__/a.pyc").write_text("x")
    assert work.changed() == {}
    assert work.not_kept() == {"by the names of secrets and caches": [".env"], "links and special files": ["link"]}


def test_a_program_stays_one(make, tmp_path):
    work = make()
    (work.folder / "new.sh").write_text("#!/bin/sh\n")
    (work.folder / "new.sh").chmod(0o755)
    (work.folder / "data/x.csv").chmod(0o755)  # and nothing else is new in it
    (work.folder / "run.sh").chmod(0o644)
    left = work.changed()
    assert left["run.sh"] == "#!/bin/sh\n"
    work.remove()  # who takes its folder would wait for that
    again = make(json.loads(json.dumps(left)))
    programs = {name: os.access(again.folder / name, os.X_OK) for name in ("new.sh", "data/x.csv", "run.sh")}
    assert programs == {"new.sh": True, "data/x.csv": True, "run.sh": False}
    assert (again.folder / "new.sh").read_text() == "#!/bin/sh\n"
    committed = {"a": SimpleNamespace(seq=1, files=left, raw="")}
    given = dict(zip(left, write_files(files_of(committed, {}, {}), tmp_path / "out"), strict=True))
    assert os.access(given["new.sh"], os.X_OK)
    assert not os.access(given["run.sh"], os.X_OK)


def test_what_has_a_strange_name_is_kept_or_told_and_nothing_fails(make):
    work = make(copied=False)
    (work.folder / "two\nlines\x1b.txt").write_text("x")
    (work.folder / os.fsdecode(b"caf\xe9.txt")).write_text("y")
    (work.folder / "empty/inner").mkdir(parents=True)
    os.mkfifo(work.folder / "pipe")
    (work.folder / "out").symlink_to("/etc")
    left = json.loads(json.dumps(work.changed(), ensure_ascii=False).encode())
    assert left == {"two\nlines\x1b.txt": "x"}
    assert work.not_kept() == {
        "by names that are not UTF-8": ["caf\\udce9.txt"],
        "links and special files": ["out", "pipe"],
        "empty folders": ["empty/inner/"],
    }
    work.remove()
    again = make(left, copied=False)
    assert (again.folder / "two\nlines\x1b.txt").read_text() == "x"


def test_too_much_is_an_error_that_says_what_to_do(make, monkeypatch):
    monkeypatch.setattr(task_files, "MOST", 1_000_000)
    work = make()
    (work.folder / "small.txt").write_text("x")
    (work.folder / "big.bin").write_bytes(bytes(2_000_000))
    with pytest.raises(TaskError) as refused:
        work.changed()
    assert str(refused.value) == (
        "the task left 2 MB of new and changed files in its folder (the biggest: 'big.bin', 2 MB), but at most 1 MB "
        "are kept with a task: write what others need to storage that all workers reach, and the rest to a folder of "
        "tempfile"
    )


def test_a_name_that_leads_out_is_laid_nowhere(make):
    work = make({"../out.txt": "x", "in.txt": "y"})
    assert {path.name for path in work.folder.iterdir()} == {"data", "run.sh", "in.txt"}
    assert not (work.folder.parent / "out.txt").exists()


def test_paths_of_the_bundle(tmp_path):
    files = LocalFiles(lambda: tmp_path)
    assert files.path("data/x.csv") == tmp_path / "data/x.csv"
    assert files.path("data/../y") == tmp_path / "y"
    for name in ("../x", "/etc/passwd"):
        with pytest.raises(ValueError, match="points outside the crew's folder"):
            files.path(name)


def test_one_that_could_not_be_made_is_not_left_behind(tmp_path):
    def full():
        yield {"a": "1"}
        raise OSError(28, "No space left on device")

    work = Workdir(lambda: take("store", tmp_path, job("job")), lambda: (None, full()), lambda path: True)
    for _ in range(2):
        with pytest.raises(DiskTrouble, match="No space"):
            _ = work.folder
        assert not list(tmp_path.glob("attempts/*/*"))


def test_what_is_gone_is_removed_below_the_folder_only(make, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("stays")
    work = make({"../../outside/x": False, str(outside / "x"): False, "none/x": False, "run.sh": False})
    assert not (work.folder / "run.sh").exists()
    (work.folder / "link").symlink_to(outside)
    work.lay({"../../../outside/x": False, "link/x": False, "data/x.csv": False})
    assert not (work.folder / "data/x.csv").exists()
    assert (outside / "x").read_text() == "stays"
