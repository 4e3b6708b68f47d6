"""Files of tasks on the executor: what one leaves is kept, and is there for the next."""

from collections.abc import Callable

import pytest

from runner.bundles import relative_paths
from runner.engine.decisions import Fail, Grown
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


def test_what_may_not_be_stored_is_left_out_and_said(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("""
        def work(ctx):
            (ctx.workdir / ".env").write_text("KEY=secret")
            (ctx.workdir / "kept.txt").write_text("kept")
            return "done"

        crew = Crew(tasks=[Task(name="work", run=work)])
        """)
    here.work()
    (files,) = here.store.files_left(run, "main")
    assert files.keys() == {"kept.txt"}
    said = [event.fields for event in here.runs.events(run) if event.type == "task_log"]
    assert "not kept" in str(said)
    assert ".env" in str(said)


def test_what_a_method_of_a_flow_leaves_is_there_for_the_next(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("""
        class Files(Flow):
            @start()
            def write(self):
                (self.workdir / "data.csv").write_text("a,b")

            @listen(write)
            def read(self):
                return (self.workdir / "data.csv").read_text()
        """)
    assert [type(decision) for _, decision in here.work()] == [Grown, Grown]
    assert "a,b" in here.texts(run).values()


@pytest.mark.parametrize(
    ("seen", "found", "said"),
    [("refuse", ["'data.csv' (crew.py:3)"], "'data.csv'"), ("stray_files", ["report.txt"], "it wrote 'report.txt'")],
)
def test_a_relative_path_fails_its_task_also_where_the_code_went_on(
    here: InProcess, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch, seen: str, found: list[str], said: str
) -> None:
    monkeypatch.setattr(relative_paths, seen, lambda: found)
    begun("crew = Crew(tasks=[Task(name='work', run=lambda ctx: 'done')])")
    ((_, decision),) = here.work()
    assert isinstance(decision, Fail)
    assert said in decision.reason
