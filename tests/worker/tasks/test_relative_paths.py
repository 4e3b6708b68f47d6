"""Each way to a relative path that a crew's code has, where tasks share a process: refused, and never different."""

import json

import pytest

from runner.bundles.loader import load_target
from runner.bundles.target import parse_target

pytestmark = pytest.mark.timeout(120)

CREW = """
    import contextlib, glob, inspect, json, linecache, os, shutil, sqlite3, subprocess, sys, tempfile
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from runner import Crew, Task

    READ = Path("data/x.csv").read_text()  # while the file is read they are those of its folder
    HERE = Path(__file__).parent

    REFUSED = {
        "open": lambda: open("data/x.csv"),
        "write": lambda: open("out.txt", "w"),
        "os.open": lambda: os.open("data/x.csv", os.O_RDONLY),
        "path.open": lambda: Path("data/x.csv").read_text(),
        "path.write": lambda: Path("out.txt").write_text("x"),
        "exists": lambda: os.path.exists("data/x.csv"),
        "isfile": lambda: os.path.isfile(b"data/x.csv"),
        "isdir": lambda: os.path.isdir("data"),
        "getsize": lambda: os.path.getsize("data/x.csv"),
        "path.exists": lambda: Path("data").exists(),
        "path.is_dir": lambda: Path("data").is_dir(),
        "path.glob": lambda: list(Path("data").glob("*")),
        "path.rglob": lambda: list(Path("data").rglob("*")),
        "path.iterdir": lambda: list(Path("data").iterdir()),
        "path.mkdir": lambda: Path("out").mkdir(),
        "path.resolve": lambda: Path("data").resolve(),
        "path.cwd": lambda: Path.cwd(),
        "listdir": lambda: os.listdir(),
        "scandir": lambda: os.scandir("."),
        "walk": lambda: list(os.walk("data", onerror=print)),
        "stat": lambda: os.stat("data"),
        "access": lambda: os.access("data", os.R_OK),
        "makedirs": lambda: os.makedirs("out/deep"),
        "rename": lambda: os.rename(HERE / "data/x.csv", "y.csv"),
        "remove": lambda: os.remove("data/x.csv"),
        "symlink": lambda: os.symlink(HERE / "data", "data"),
        "copy": lambda: shutil.copy(HERE / "data/x.csv", "y.csv"),
        "rmtree": lambda: shutil.rmtree("data", ignore_errors=True),
        "glob": lambda: glob.glob("data/*.csv"),
        "glob recursive": lambda: glob.glob("**/*.csv", recursive=True),
        "getcwd": lambda: os.path.join(os.getcwd(), "data/x.csv"),
        "abspath": lambda: os.path.abspath("data/x.csv"),
        "chdir": lambda: os.chdir(HERE),
        "contextlib.chdir": lambda: contextlib.chdir(HERE).__enter__(),
        "sqlite3": lambda: sqlite3.connect("x.db"),
        "sqlite3 uri": lambda: sqlite3.connect("file:x.db?mode=ro", uri=True),
        "thread": lambda: ThreadPoolExecutor(1).submit(os.path.exists, "data").result(),
        "own thread": lambda: ThreadPoolExecutor(1).submit(lambda: os.path.exists("data")).result(),
    }

    def removes(folder):
        (folder / "one/two").mkdir(parents=True)
        (folder / "one/two/x").touch()
        shutil.rmtree(folder / "one")
        return (folder / "one").exists()

    def relative_to_a_folder(folder):
        handle = os.open(folder, os.O_RDONLY)
        os.mkdir("inner", dir_fd=handle)
        os.stat("inner", dir_fd=handle)
        os.rmdir("inner", dir_fd=handle)

    ALLOWED = {
        "bundle": lambda ctx: ctx.path("data/x.csv").read_text() == (HERE / "data/x.csv").read_text() == READ,
        "workdir": lambda ctx: sorted(os.listdir(ctx.workdir)) + list(ctx.workdir.glob("*")),
        "rmtree": lambda ctx: removes(ctx.workdir),
        "dir_fd": lambda ctx: relative_to_a_folder(ctx.workdir),
        "tempfile": lambda ctx: tempfile.TemporaryDirectory().cleanup(),
        "sqlite3": lambda ctx: sqlite3.connect(":memory:").execute("select 1").fetchall(),
        "program": lambda ctx: subprocess.run(["ls"], cwd=ctx.workdir, check=True, capture_output=True).stdout,
        "source": lambda ctx: inspect.getsource(removes),
        "code of others": lambda ctx: linecache.getline("src/lxml/etree.pyx", 3),
        "symlink": lambda ctx: os.symlink("nothing", ctx.workdir / "link"),
        "names": lambda ctx: os.path.join("data", "x"),
    }

    def tries(ctx):
        found = {}
        for name, does in REFUSED.items():
            try:
                found[name] = repr(does())
            except Exception as error:
                found[name] = type(error).__name__
        with open(LOG, "w") as out:
            json.dump(found, out)

    def is_allowed(ctx):
        for name, does in ALLOWED.items():
            does(ctx)
        return "done"

    tried, fine = Crew(tasks=[Task(run=tries)]), Crew(tasks=[Task(run=is_allowed)])
"""


@pytest.fixture
def crew(write_crew, tmp_path):
    file = write_crew(CREW.replace("LOG", repr(str(tmp_path / "found.json"))))
    (file.parent / "data").mkdir()
    (file.parent / "data/x.csv").write_text("1,2\n")
    return file


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_each_is_refused_and_a_task_that_swallows_that_fails(fleet, client, crew, tmp_path, pool):
    fleet.start("--pool", pool, "--concurrency", "1")
    error = client.submit(f"{crew}:tried").wait(60).error or ""
    found = json.loads((tmp_path / "found.json").read_text())
    # A thread that is given none but a function of Python's has no frame of the crew's: it finds an empty folder.
    assert found.pop("thread") == "False"
    assert found.pop("rmtree") in ("None", "RelativePath")  # it was told to ignore errors: noted all the same
    assert {name: was for name, was in found.items() if was != "RelativePath"} == {}
    assert "the relative path 'data/x.csv' (crew.py:11): relative paths do not work on a worker: ctx.path(" in error
    assert client.submit(f"{crew}:fine").wait(60).result == "done"


def test_in_kickoff_they_are_those_of_where_it_is(crew, monkeypatch):
    monkeypatch.chdir(crew.parent)
    module = load_target(parse_target(f"{crew}:fine"))
    assert module.REFUSED["exists"]()
    assert module.REFUSED["glob"]() == ["data/x.csv"]
    assert module.fine.kickoff().raw == "done"
