"""Which jobs a process takes, and with which it continues: its environment, its pools, its slice of time."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.bundles import signing
from runner.bundles.task_files import Workdir
from runner.core.errors import ClaimLost, Interrupted
from runner.core.jobs import Claim, Job, Needed, Refusal
from runner.core.states import RunStatus
from runner.crews import kickoff_callbacks
from runner.engine import code_cache, jobs
from runner.engine.decisions import Commit, Fail, Lost, Release, Retry
from runner.engine.environments import Environments
from runner.engine.event_relay import TaskEvents
from runner.engine.jobs import JobExecutor
from runner.engine.local import LocalStops
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.modelserver import stubs
from runner.providers.memory.task import MemoryTask
from runner.testing.in_process import InProcess

from .test_flows import BOTH

ONE = "crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'done')])"

CHAIN = """
    def work(ctx):
        return ctx.task.name

    crew = Crew(tasks=[Task(name="a", run=work), Task(name="b", run=work), Task(name="c", run=work, pool="thread")])
    """


class Choosy(Environments):
    """It is asked for each environment; jobs of others are sent on."""

    accepted = ""

    def __init__(self, *own: str) -> None:
        super().__init__()
        self.own, self.asked = own, list[tuple[str, str]]()

    def takes(self, needed: Needed, root: Callable[[], Path], job: Job) -> bool:
        self.asked.append((needed.digest, (root() / needed.file).name))
        return needed.digest in self.own and self.accept(needed)


def test_a_run_that_asks_for_this_environment_is_done_and_its_digest_is_known_from_then_on(
    here: InProcess, begun: Callable[..., str]
) -> None:
    here.executor._environments = choosy = Choosy("mine")
    runs = [begun(ONE, environment="mine crew.py") for _ in range(2)]
    assert [type(decision) for _, decision in here.work()] == [Commit, Commit]
    assert [here.texts(run) for run in runs] == [{"a": "done"}] * 2
    assert choosy.asked == [("mine", "crew.py")]


def test_one_that_asks_for_another_is_not_claimed(here: InProcess, begun: Callable[..., str]) -> None:
    here.executor._environments = Choosy("mine")
    run = begun(ONE, environment="another crew.py")
    ((_, refusal),) = here.work()
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "environment"
    assert here.runs.get(run).status is RunStatus.running


def test_code_that_may_not_run_here_builds_nothing_and_fails_its_run(
    here: InProcess, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here.executor._environments = choosy = Choosy("mine")
    monkeypatch.setenv(signing.VARIABLE, "correct horse battery")
    run = begun(ONE, environment="mine crew.py")
    here.work()
    assert choosy.asked == []
    assert "not signed" in here.runs.get(run).error


def test_where_an_environment_cannot_be_built_its_runs_fail_and_say_why(
    here: InProcess, begun: Callable[..., str]
) -> None:
    here.executor._environments = choosy = Choosy("mine")
    choosy.failure = "there is no such package"
    run = begun(ONE, environment="mine crew.py")
    here.work()
    assert "there is no such package" in here.runs.get(run).error


def test_a_process_continues_with_what_its_pools_do_until_its_time_is_over(
    here: InProcess, begun: Callable[..., str]
) -> None:
    here.executor._time_slice, here.executor._serves = 60.0, ("",)
    run = begun(CHAIN)
    job, _ = here.step() or pytest.fail("nothing to do")
    assert (following := here.executor.next) is not None
    assert (job.task, following.job.task) == ("a", "b")
    assert here.step() is None, "what it continues with is in no queue"
    assert isinstance(here.executor.do(following.job), Commit)
    assert here.executor.next is None, "the next is of a pool that it does not serve"
    here.work()
    assert list(here.texts(run)) == ["a", "b", "c"]

    begun(CHAIN)
    here.executor._time_slice = 0.0
    here.step()
    assert here.executor.next is None


def test_a_process_that_is_asked_to_end_gives_a_job_back(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(ONE)
    here.executor._stops.draining = True
    ((_, refusal),) = [here.step()]
    assert refusal == Refusal("draining")
    assert here.runs.get(run).status is RunStatus.running
    here.executor._stops.draining = False
    here.work()
    assert here.texts(run) == {"a": "done"}


class Ends(LocalStops):
    """Its process begins to end, or loses its claim, while a task is at work."""

    why: BaseException | None = None

    @contextlib.contextmanager
    def watching(self, cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> Iterator[None]:
        self.draining = self.why is None
        with super().watching(cancel_scope, claim, timeout):
            try:
                yield
            finally:
                if self.why is not None:
                    cancel_scope.ask(self.why)


def test_a_process_that_drains_continues_with_nothing(here: InProcess, begun: Callable[..., str]) -> None:
    here.executor._time_slice, here.executor._serves = 60.0, ("",)
    here.executor._stops = here.executor._executor._stops = Ends()
    begun(CHAIN)
    _, decision = here.step() or pytest.fail("nothing to do")
    assert isinstance(decision, Commit)
    assert here.executor.next is None


@pytest.mark.parametrize(
    ("raised", "why", "outcome"),
    [
        ("SystemExit(1)", None, Release),
        ("ValueError('cut short')", Interrupted("the worker ends"), Release),
        ("ValueError('cut short')", ClaimLost("another worker has it"), Lost),
        ("ValueError('its own')", None, Fail),
    ],
)
def test_what_a_task_raises_as_it_is_ended_is_no_failure_of_its_own(
    raised: str, why: BaseException | None, outcome: type, here: InProcess, begun: Callable[..., str]
) -> None:
    stops = Ends()
    stops.why = why
    here.executor._executor._stops = stops
    begun(f"""
        def work(ctx):
            raise {raised}

        crew = Crew(tasks=[Task(name="a", run=work)])
        """)
    _, decision = here.step() or pytest.fail("nothing to do")
    assert type(decision) is outcome


def test_the_models_of_a_run_that_asks_for_it_are_stood_in_for(here: InProcess, begun: Callable[..., str]) -> None:
    code = """
        from runner.journal.current_journal import sole_journal
        from runner.modelserver import stubs

        def work(ctx):
            return f"{stubs.chosen()} {sole_journal().standin}"

        crew = Crew(tasks=[Task(name="a", run=work)])
        """
    asking, run = begun(code, standin="demo"), begun(code)
    with stubs.using(None):
        here.work()
    assert here.texts(asking) == {"a": "demo demo"}
    assert here.texts(run) == {"a": "None None"}


def test_a_method_that_ends_while_another_changes_the_state_looks_again(
    here: InProcess, begun: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers do one each. The second commits right before the first does."""
    run, beside = begun(BOTH), InProcess(tmp_path / "cache", worker="w1", store=here.store)
    expand, others, answers = MemoryTask.expand, [beside], list[bool]()

    def expand_last(task: MemoryTask, *args: Any, **kwargs: Any) -> bool:
        while others:
            others.pop().step()
        answers.append(expand(task, *args, **kwargs))
        return answers[-1]

    monkeypatch.setattr(MemoryTask, "expand", expand_last)
    here.work()
    assert answers == [True, False, True, True], "the other method, this one, this one once more, the end"
    found = here.runs.committed(run, "main")["end"].json
    assert (found["one"], found["two"]) == (1, 2)


@pytest.mark.parametrize("part", ["JobExecutor.over", "TaskEvents.close", "leave_folder", "Workdir.remove"])
def test_what_an_attempt_leaves_it_leaves_each_whatever_another_raises(
    part: str, here: InProcess, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun("""
        def work(ctx):
            (ctx.workdir / "data").write_text("data")
            return (ctx.workdir / "data").read_text()

        crew = Crew(tasks=[Task(name="a", run=work)])
        """)
    left: list[str] = []

    def watch(owner: Any, name: str, label: str) -> None:
        do = getattr(owner, name)

        def watched(*args: Any) -> None:
            do(*args)
            left.append(label)
            if label == part:
                raise ValueError(part)

        monkeypatch.setattr(owner, name, watched)

    watch(JobExecutor, "over", "JobExecutor.over")
    watch(TaskEvents, "close", "TaskEvents.close")
    watch(code_cache, "leave_folder", "leave_folder")
    watch(Workdir, "remove", "Workdir.remove")
    with pytest.raises(ValueError, match=part):
        here.work()
    assert set(left) == {"JobExecutor.over", "TaskEvents.close", "leave_folder", "Workdir.remove"}


def of_an_older_version(patch: pytest.MonkeyPatch) -> None:
    """A worker that does not know yet that a crew's callbacks are tasks."""
    patch.setattr(kickoff_callbacks, "keys_of", lambda crew: [])


NEW = "crew = Crew(before_kickoff_callbacks=[lambda inputs: inputs], tasks=[Task(name='a', run=lambda ctx: 'done')])"


def test_a_task_that_an_older_worker_does_not_know_is_left_to_others(
    here: InProcess, begun: Callable[..., str]
) -> None:
    run = begun(NEW)
    with pytest.MonkeyPatch.context() as patch:
        of_an_older_version(patch)
        _, decision = here.step() or (None, None)
    assert isinstance(decision, Retry)
    assert decision.reason.startswith(
        "there is no task 'before_kickoff' in the crew here: its tasks must not depend on"
    )
    assert "no worker may be older than who submits (on worker host " in decision.reason
    here.work()
    assert here.texts(run)["a"] == "done"


def test_where_all_workers_are_older_the_run_says_so(
    here: InProcess, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(NEW)
    of_an_older_version(monkeypatch)
    kinds = [type(decision) for _, decision in here.work()]
    assert kinds == [*[Retry] * (jobs.ATTEMPTS_ELSEWHERE - 1), Fail]
    assert here.runs.get(run).error.startswith(
        "task 'before_kickoff': there is no task 'before_kickoff' in the crew here"
    )


FULL = """
    import errno

    def write(what):
        trace("write " + what)
        if not Path({there!r}).exists():
            try:
                raise OSError(errno.{what}, "of this machine")
            except OSError as error:
                raise ValueError("what a library makes of it") from error
        return "written"

    def work(ctx):
        ctx.step("before", trace, "before")
        return ctx.step("write", write, "it")

    crew = Crew(tasks=[Task(name="a", run=work)])
    """


@pytest.mark.parametrize("what", ["ENOSPC", "EDQUOT", "EMFILE", "ENFILE"])
def test_code_that_finds_a_machine_used_up_is_tried_again(
    here: InProcess, begun: Callable[..., str], done: Callable[[], list[str]], tmp_path: Path, what: str
) -> None:
    run = begun(FULL.format(there=str(tmp_path / "room"), what=what))
    _, decision = here.step() or (None, None)
    assert isinstance(decision, Retry)
    assert "on worker host" in decision.reason
    (tmp_path / "room").touch()
    here.work()
    assert here.texts(run) == {"a": "written"}
    assert done() == ["before", "write it", "write it"]
