"""Native crews on the executor: graphs, steps, retries, timeouts, crashes."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from runner import Crew, Task
from runner.core.states import RunStatus
from runner.engine.decisions import Commit, Fail, Lost, Release, Retry
from runner.engine.jobs import REGISTER_WAIT
from runner.engine.local import LocalStops
from runner.journal.cancellation import timing
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.llm.recording import unrecorded
from runner.providers.memory.task import MemoryTask
from runner.testing.in_process import LEASE, InProcess

GRAPH = """
    def collect(ctx):
        trace("collect")
        return {"pages": [ctx.inputs["topic"], "b"]}

    def count(ctx):
        return f"{len(ctx.outputs['collect'].json_dict['pages'])} pages"

    def shout(ctx):
        return ctx.outputs["collect"].json_dict["pages"][0].upper()

    def join(ctx):
        return f"{ctx.outputs['count'].raw}: {ctx.outputs['shout'].raw}"

    one = Task(name="collect", run=collect)
    two = Task(name="count", run=count, context=[one])
    three = Task(name="shout", run=shout, context=[one])
    crew = Crew(tasks=[one, two, three, Task(name="join", run=join, context=[two, three])], process=Process.graph,
                checkpoint=CheckpointConfig(max_checkpoints=2))
    """

STEPS = """
    def work(ctx):
        first = ctx.step("first", lambda: trace("first") or 1)
        if not Path(str(TRACE) + ".go").exists():
            {trouble}
        second = ctx.step("second", lambda: trace("second") or 2)
        return f"{{first}} {{second}}"

    crew = Crew(tasks=[Task(name="work", run=work, {options})])
    """


LIMITED = """
    class Own(BaseLLM):
        def call(self, messages, tools=None, **options):
            return "said"

    one = Agent(role="A", llm=Own("own"))
    crew = Crew(tasks=[Task(name=name, description="it", agent=one) for name in "abc"], max_rpm=1)
    """


def steps(trouble: str, options: str = "") -> str:
    return STEPS.format(trouble=trouble, options=options)


def test_a_graph_goes_through_with_its_context(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(GRAPH, {"topic": "owls"})
    assert [type(decision) for _, decision in here.work()] == [Commit] * 4
    assert here.runs.get(run).status is RunStatus.completed
    assert here.texts(run)["join"] == "2 pages: OWLS"
    assert len(here.runs.checkpoints(run, "main")) == 2


def test_what_is_delivered_twice_is_done_once(here: InProcess, begun: Callable[..., str], done: Any) -> None:
    begun(GRAPH, {"topic": "owls"})
    job, _ = here.step() or pytest.fail("nothing to do")
    again = here.executor.do(job)
    assert getattr(again, "reason", None) == "taken"
    assert done() == ["collect"]


def test_a_task_that_raised_goes_on_from_its_recorded_steps(
    here: InProcess, begun: Callable[..., str], done: Any, tmp_path: Any
) -> None:
    run = begun(steps("raise ValueError('not yet')", "max_retries=3"))
    job, decision = here.step() or pytest.fail("nothing to do")
    assert isinstance(decision, Retry)
    assert decision.reason.startswith("ValueError: not yet")
    assert here.step() is None, "its delay is not over"
    (tmp_path / "trace.go").touch()
    (found,) = here.work()
    assert isinstance(found[1], Commit)
    assert found[0].attempt == job.attempt + 1
    assert done() == ["first", "second"]
    assert (here.runs.get(run).paid, here.runs.get(run).replayed, here.runs.get(run).in_doubt) == (2, 1, 0)


def test_so_many_retries_and_then_the_run_fails(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(steps("raise ValueError('never')", "max_retries=2"))
    decisions = [decision for _, decision in here.work()]
    assert [type(decision) for decision in decisions] == [Retry, Retry, Fail]
    assert here.runs.get(run).status is RunStatus.failed
    assert "never" in here.runs.get(run).error


def test_a_failed_run_is_resumed_from_what_was_paid(
    here: InProcess, begun: Callable[..., str], done: Any, tmp_path: Any
) -> None:
    run = begun(steps("raise ValueError('broken')"))
    here.work()
    (tmp_path / "trace.go").touch()
    assert here.runs.resume(here.runs.get(run), "main", start=None, fields={}, plan=None) == "resumed"
    here.work()
    assert here.texts(run) == {"work": "1 2"}
    assert done() == ["first", "second"]


def test_a_timeout_reaches_a_task_between_its_steps(
    here: InProcess, begun: Callable[..., str], done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Section(InterruptibleSection):
        """Its minute is over once the task is between its steps."""

        def wait(self, seconds: float) -> bool:
            while seconds == 60 and "between" not in done():
                time.sleep(0.001)
            return super().wait(0 if seconds == 60 else seconds)

    monkeypatch.setattr(timing, "InterruptibleSection", Section)
    run = begun(steps("trace('between'); exec('while True: pass')", "timeout=60"))
    (found,) = here.work()
    assert isinstance(found[1], Fail)
    assert "longer than its timeout of 60 s" in here.runs.get(run).error
    assert done() == ["first", "between"]


def test_a_worker_that_drains_sends_its_job_on(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(GRAPH, {"topic": "owls"})
    here.stops.draining = True
    assert getattr((here.step() or ("", None))[1], "reason", None) == "draining"
    here.stops.draining = False
    here.work()
    assert here.runs.get(run).status is RunStatus.completed


def test_a_job_waits_for_its_workers_lease_and_is_then_sent_on(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(GRAPH, {"topic": "owls"})
    here.workers.reap("w0", reason="its lease lapsed", max_attempts=9)
    began = here.clock.now()
    assert getattr((here.step() or ("", None))[1], "reason", None) == "unregistered"
    assert REGISTER_WAIT < here.clock.now() - began < REGISTER_WAIT + 1
    here.workers.beat("w0", LEASE, "{}")
    here.work()
    assert here.runs.get(run).status is RunStatus.completed


def test_a_minute_of_a_limit_is_one_of_the_clock(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(LIMITED)
    began = here.clock.now()
    here.work()
    assert here.texts(run) == {"a": "said", "b": "said", "c": "said"}
    assert 120 <= here.clock.now() - began < 121


def test_who_lost_the_claim_does_no_other_step_and_commits_nothing(
    here: InProcess, begun: Callable[..., str], done: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(steps("pass"))
    give = here.store.task

    def give_and_reap(*args: Any) -> MemoryTask:
        """The worker is taken for dead right after the first record of its task."""
        task = give(*args)
        record = task.record_step

        def record_and_reap(*args: Any, **kwargs: Any) -> None:
            record(*args, **kwargs)
            here.workers.reap("w0", process="p0", reason="it froze", max_attempts=9)

        monkeypatch.setattr(task, "record_step", record_and_reap)
        return task

    monkeypatch.setattr(here.store, "task", give_and_reap)
    _, decision = here.step() or pytest.fail("nothing to do")
    assert isinstance(decision, Lost)
    assert here.texts(run) == {}
    assert done() == ["first"]
    monkeypatch.setattr(here.store, "task", give)
    here.work()
    assert here.texts(run) == {"work": "1 2"}
    assert done() == ["first", "second"]


def test_a_crew_that_is_sent_an_exit_fails_its_task_and_not_its_worker(
    here: InProcess, begun: Callable[..., str]
) -> None:
    run = begun(steps("raise SystemExit(3)"))
    here.work()
    assert here.runs.get(run).status is RunStatus.failed


def test_an_import_that_is_missing_is_told(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(steps("import a_package_nobody_has"))
    here.work()
    assert "a_package_nobody_has" in here.runs.get(run).error


def test_a_fork_with_an_edited_output_does_what_used_it(here: InProcess, begun: Callable[..., str], done: Any) -> None:
    run = begun(GRAPH, {"topic": "owls"})
    here.work()
    where = here.runs.position(run, outputs=["count"])
    edits = {"count": '{"raw": "no pages"}'}
    rerun, nothing = frozenset({"join"}), frozenset[str]()
    assert here.runs.fork(where, "side", rerun=rerun, kept=nothing, edits=edits, overrides={}) == "forked"
    here.work()
    assert here.texts(run, "side")["join"] == "no pages: OWLS"
    assert done() == ["collect"]


def test_events_of_a_task_are_one_tree(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(steps("raise ValueError('not yet')", "max_retries=1"))
    here.work()
    told = [(event.type, event.parent, event.started) for event in here.runs.events(run)]
    assert told == [
        ("crew_kickoff_started", 0, 0),
        ("task_started", 1, 0),
        ("task_retried", 2, 0),
        ("task_resumed", 2, 0),
        ("task_failed", 1, 2),
        ("crew_kickoff_failed", 0, 1),
    ]


def test_code_that_is_not_there_fails_the_run_at_once(here: InProcess, crew_of: Callable[[str], Any]) -> None:
    run = here.submit(crew_of("crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x')])"), module="nowhere")
    (found,) = here.work()
    assert isinstance(found[1], Fail)
    assert "nowhere" in here.runs.get(run).error
    assert "on worker host" in here.runs.get(run).error


def test_what_a_disk_refuses_is_tried_again_though_the_task_has_no_retries(
    here: InProcess, begun: Callable[..., str], done: Any
) -> None:
    run = begun("""
        from runner.core.errors import DiskTrouble

        def work(ctx):
            trace("tried")
            if len(TRACE.read_text().splitlines()) < 3:
                raise DiskTrouble("the disk is full")
            return "done"

        crew = Crew(tasks=[Task(name="work", run=work)])
        """)
    kinds = [type(decision) for _, decision in here.work()]
    assert kinds == [Retry, Retry, Commit]
    assert here.texts(run) == {"work": "done"}
    assert done() == ["tried"] * 3


def test_an_exit_while_the_worker_drains_is_no_failure(here: InProcess, begun: Callable[..., str], done: Any) -> None:
    class Draining(LocalStops):
        """It begins to drain while the task is at work."""

        draining = property(lambda self: "at work" in done())

    begun("""
        def work(ctx):
            trace("at work")
            raise SystemExit(0)

        crew = Crew(tasks=[Task(name="work", run=work)])
        """)
    here.stops.__class__ = Draining
    found = here.step()
    assert found is not None
    assert isinstance(found[1], Release)


def test_a_run_that_asked_for_a_stub_and_calls_no_model_needs_none(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'done')])", standin="demo")
    here.work()
    assert here.texts(run) == {"a": "done"}


def test_calls_that_went_past_the_journal_are_said_whatever_becomes_of_the_task(
    here: InProcess, begun: Callable[..., str]
) -> None:
    run = begun("""
        from runner.llm.recording import unrecorded

        def work(ctx):
            unrecorded.look_at("POST", "https://api.openai.com/v1/chat/completions", b'{"model": "m", "messages": []}')
            if ctx.attempt == 1:
                raise OSError("not yet")
            return "done"

        crew = Crew(tasks=[Task(name="work", run=work, max_retries=1, retry_delay=0)])
        """)
    assert [type(decision) for _, decision in here.work()] == [Retry, Commit]
    said = [event.fields for event in here.runs.events(run) if event.type == "calls_unrecorded"]
    assert ["1 to api.openai.com/v1/chat/completions" in str(one) for one in said] == [True, True]


def test_those_of_a_kickoff_inside_of_a_task_are_said_with_the_task(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("""
        from runner.llm.recording import unrecorded

        def ask(ctx):
            unrecorded.look_at("POST", "https://api.openai.com/v1/chat/completions", b'{"model": "m", "messages": []}')
            return "asked"

        def inner():
            return Crew(tasks=[Task(name="ask", run=ask)]).kickoff().raw

        crew = Crew(tasks=[Task(name="work", run=lambda ctx: inner())])
        """)
    here.work()
    assert here.texts(run) == {"work": "asked"}
    (said,) = [event.fields for event in here.runs.events(run) if event.type == "calls_unrecorded"]
    assert "1 to api.openai.com/v1/chat/completions" in str(said)


def test_those_of_a_kickoff_in_no_run_are_nobodys() -> None:
    def ask(ctx: object) -> str:
        unrecorded.look_at("POST", "https://api.openai.com/v1/chat/completions", b'{"model": "m", "messages": []}')
        return "asked"

    assert Crew(tasks=[Task(name="ask", run=ask)]).kickoff().raw == "asked"
