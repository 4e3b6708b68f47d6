"""Files of tasks on the executor: what one leaves is kept, and is there for the next."""

from collections.abc import Callable

from runner.testing.in_process import InProcess


def test_what_a_task_leaves_is_there_for_the_next(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("""
        def write(ctx):
            (ctx.workdir / "data.csv").write_text("a,b")
            return "written"

        def read(ctx):
            return (ctx.workdir / "data.csv").read_text()

        one = Task(name="write", run=write, output_file="{topic}.txt")
        crew = Crew(tasks=[one, Task(name="read", run=read, context=[one])])
        """, {"topic": "owls"})  # fmt: skip
    here.work()
    assert here.texts(run) == {"write": "written", "read": "a,b"}
    (record,) = [files for files in here.store.files_left(run, "main") if "owls.txt" in files]
    assert record.keys() == {"data.csv", "owls.txt"}
