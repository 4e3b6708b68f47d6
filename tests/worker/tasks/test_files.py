"""What tasks read and write: files of their bundle, files of their runs, and relative paths, which lead nowhere."""

import os
from pathlib import Path

import pytest

from runner.bundles.loader import load_target
from runner.bundles.target import parse_target
from runner.testing import Call, ModelServer

pytestmark = pytest.mark.timeout(120)

CREW = """
    from pathlib import Path
    from runner import Agent, Crew, Process, Task

    def trace(line):
        with open({log!r}, "a") as out:
            out.write(line + chr(10))

    def wrote(folder):
        trace("step")
        with (folder / "log.txt").open("a") as out:
            out.write("by a step;")
        (folder / "bytes.bin").write_bytes(bytes([255, 0]))

    def first(ctx):
        with (ctx.workdir / "log.txt").open("a") as out:
            out.write("before;")
        ctx.step("wrote", lambda: wrote(ctx.workdir))
        with (ctx.workdir / "log.txt").open("a") as out:
            out.write("after;")
        trace(f"held {{ctx.attempt}}")
        while ctx.attempt == 1 and {held}:
            pass
        return ctx.path("data/x.csv").read_text() + Path(ctx.path("data/x.csv")).parent.parent.name

    def second(ctx):
        found = (ctx.workdir / "log.txt").read_text(), (ctx.workdir / "bytes.bin").read_bytes()[0]
        (ctx.workdir / "bytes.bin").unlink()
        (ctx.workdir / "deep/er").mkdir(parents=True)
        (ctx.workdir / "deep/er/second.txt").write_text("from the second")
        return [*found, (ctx.workdir / "first.md").exists()]

    def third(ctx):
        return sorted(path.name for path in ctx.workdir.rglob("*") if path.is_file())

    crew = Crew(tasks=[
        Task(name="first", run=first, output_file="first.md"), Task(name="second", run=second),
        Task(name="third", run=third),
    ])
"""


@pytest.fixture
def crew(write_crew, tmp_path):
    def write(held: bool = False) -> Path:
        file = write_crew(CREW.format(log=str(tmp_path / "log"), held=held))
        (file.parent / "data").mkdir()
        (file.parent / "data/x.csv").write_text("1,2\n")
        return file

    return write


def _lines(tmp_path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_files_are_there_for_the_tasks_after_on_whatever_machine_and_given_back(
    fleet, client, crew, tmp_path, eventually
):
    machines = [fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / name)) for name in ("a", "b")]
    handle = client.submit(crew())
    result = handle.wait(60)
    assert result.error is None
    assert result.outputs["first"].startswith("1,2\n")
    assert result.outputs["second"] == '["before;by a step;after;", 255, true]'
    assert result.outputs["third"] == '["first.md", "log.txt", "second.txt"]'
    assert len(machines) == 2
    out = tmp_path / "out"
    for _ in handle.write_output_files(out):
        pass
    found = {path.relative_to(out).as_posix(): path.read_text() for path in out.rglob("*") if path.is_file()}
    assert found == {
        "first.md": result.outputs["first"], "log.txt": "before;by a step;after;",
        "deep/er/second.txt": "from the second",
    }  # fmt: skip
    works = [tmp_path / name / "work" for name in ("a", "b")]
    eventually(lambda: not any([*work.glob("*/*/*")] for work in works), why="the last folder goes after its commit")


def test_an_attempt_elsewhere_finds_what_its_recorded_steps_wrote_and_nothing_twice(
    fleet, client, crew, tmp_path, eventually
):
    one = fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / "a"))
    handle = client.submit(crew(held=True))
    eventually(lambda: "held 1" in _lines(tmp_path), why="the first attempt wrote all of it")
    other = fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / "b"))
    one.kill_group()
    result = handle.wait(60)
    assert other.alive()
    assert result.outputs["second"] == '["before;by a step;after;", 255, true]'
    assert _lines(tmp_path) == ["step", "held 1", "held 2"]


def test_a_fork_begins_with_the_files_of_where_it_leaves(fleet, client, crew, tmp_path):
    fleet.start("--concurrency", "1")
    handle = client.submit(crew())
    handle.wait(60)
    checkpoint = next(one for one in client.checkpoints(handle.id) if one.task == "first")
    forked = handle.fork(checkpoint=checkpoint.id, branch="other")
    assert forked.wait(60).outputs["second"] == '["before;by a step;after;", 255, true]'


RELATIVE = """
    from runner import Crew, Task

    def reads(ctx):
        return open("data/x.csv").read()

    def writes(ctx):
        open("left.txt", "w").write("x")
        return "done"

    read, write = Crew(tasks=[Task(run=reads)]), Crew(tasks=[Task(run=writes)])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_relative_path_leads_nowhere_and_the_error_says_what_to_use(fleet, client, write_crew, pool):
    file = write_crew(RELATIVE)
    (file.parent / "data").mkdir()
    (file.parent / "data/x.csv").write_text("1,2\n")
    fleet.start("--pool", pool, "--concurrency", "1")
    advice = "relative paths do not work on a worker: ctx.path('data/x.csv') is a file beside the crew, ctx.workdir"
    refused = "the relative path {!r} (crew.py:{}): " + advice
    error = client.submit(f"{file}:read").wait(60).error or ""
    assert refused.format("data/x.csv", 5) in error
    error = client.submit(f"{file}:write").wait(60).error or ""
    assert refused.format("left.txt", 8) in error


TOOL = """
    from runner import Agent, Crew, Task, tool

    @tool
    def notes() -> str:
        "Read the notes."
        return open("data/notes.txt").read()

    agent = Agent(role="clerk", llm="openai/m", tools=[notes])
    crew = Crew(agents=[agent], tasks=[Task(name="a", description="Read.", agent=agent)])
"""


def test_a_tool_that_is_led_nowhere_fails_its_task_instead_of_telling_the_model(fleet, client, write_crew):
    with ModelServer(lambda request: Call("notes", {})) as models:
        fleet.start("--concurrency", "1", **models.environment)
        error = client.submit(str(write_crew(TOOL))).wait(60).error or ""
    assert "the tool 'notes': the relative path 'data/notes.txt' (crew.py:7): relative paths do not work" in error
    assert models.paid == 1


FLOW = """
    from runner.flows import Flow, listen, start

    class Notes(Flow):
        @start()
        def write(self):
            (self.workdir / "notes.txt").write_text(self.path("data.txt").read_text() + "!")

        @listen(write)
        def read(self):
            return (self.workdir / "notes.txt").read_text()
"""


def test_methods_of_a_flow_have_files_too(fleet, client, write_crew, tmp_path):
    file = write_crew(FLOW, data__txt="owls")
    for name in ("a", "b"):
        fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / name))
    handle = client.submit(str(file))
    assert handle.wait(60).result == "owls!"
    assert [(one.path, one.data) for one in handle.files()] == [("notes.txt", b"owls!")]


def test_kickoff_here_reads_beside_the_crew_and_writes_where_it_is(crew, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = load_target(parse_target(str(crew())))
    output = module.crew.kickoff()
    assert output.tasks_output[0].raw == "1,2\ncrew"
    assert (tmp_path / "deep/er/second.txt").read_text() == "from the second"


STRANGE = """
    import os
    from runner import Crew, Task

    def leaves(ctx):
        (ctx.workdir / "tool.sh").write_text("exit 7")
        (ctx.workdir / "tool.sh").chmod(0o755)
        (ctx.workdir / os.fsdecode(bytes([99, 233]))).write_text("x")
        (ctx.workdir / "link").symlink_to("/etc/hostname")
        (ctx.workdir / "none").mkdir()
        return ctx.step("look", lambda: sorted(os.listdir(os.fsencode(ctx.workdir))) and "done")

    def finds(ctx):
        return [os.access(ctx.workdir / "tool.sh", os.X_OK), sorted(os.listdir(ctx.workdir))]

    crew = Crew(tasks=[Task(name="a", run=leaves), Task(name="b", run=finds)])
"""


def test_programs_are_given_on_as_such_and_what_is_not_kept_is_named(fleet, client, write_crew, tmp_path):
    fleet.start("--concurrency", "1")
    handle = client.submit(str(write_crew(STRANGE)))
    assert handle.wait(60).result == '[true, ["tool.sh"]]'
    said = [event.fields["text"] for event in handle.events() if event.type == "task_log"]
    assert said == [
        "not kept, by names that are not UTF-8: c\\udce9; links and special files: link; empty folders: none/"
    ]
    assert [os.access(path, os.X_OK) for path in handle.write_output_files(tmp_path / "out")] == [True]
