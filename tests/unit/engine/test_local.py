"""What a plan performed in this process begins when: the same rule for tasks in threads and on an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

import pytest

from runner.core.errors import Interrupted
from runner.core.jobs import Claim, Job
from runner.core.ledger import AccountKey, Usage
from runner.core.output import UsageMetrics
from runner.core.plan import Plan, PlannedTask, frontier
from runner.engine import local
from runner.engine.attempt import Loaded
from runner.engine.work import Conversation, Work
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal

DIAMOND = Plan(
    "crew", (PlannedTask("a"), PlannedTask("b", ("a",)), PlannedTask("c", ("a",)), PlannedTask("d", ("b", "c")))
)

CLAIM = Claim(
    Job("r", "main", "a", 1), worker="", token=1, failures=0, failed=0, adapter="", inputs={}, rerun_mask="",
    plan_digest="", crew="", scope=local._SCOPE, recorded={}, context={},
)  # fmt: skip


class DiamondWork:
    """Begins tasks that end when the test says so."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.done, self.begun = plan, set[str](), dict[str, Future]()
        self.schedule = local.Schedule(self.begin, frontier(plan, self.done))

    def begin(self, task: PlannedTask) -> Future:
        self.begun[task.key] = Future()
        return self.begun[task.key]

    def end(self, *keys: str, error: BaseException | None = None) -> None:
        for key in keys:
            self.done.add(key)
            if error is None:
                self.begun[key].set_result([one for one in self.plan.dependents[key] if one.may_run(self.done)])
            else:
                self.begun[key].set_exception(error)
        self.schedule.ended({self.begun[key] for key in keys})


def test_a_task_begins_once_when_the_last_that_it_waits_for_is_done():
    work = DiamondWork(DIAMOND)
    assert [*work.begun] == ["a"]
    work.end("a")
    assert [*work.begun] == ["a", "b", "c"]
    work.end("b")
    assert [*work.begun] == ["a", "b", "c"]
    work.end("c")
    assert [*work.begun] == ["a", "b", "c", "d"]


def test_after_a_failure_nothing_begins_and_what_is_in_flight_ends():
    work = DiamondWork(DIAMOND)
    work.end("a")
    work.end("b", error=ValueError("first"))
    assert work.schedule.in_flight
    work.end("c", error=ValueError("second"))
    assert not work.schedule.in_flight
    assert str(work.schedule.failure) == "first"
    assert "d" not in work.begun


def test_of_those_that_fail_together_the_one_that_began_first_counts():
    work = DiamondWork(DIAMOND)
    work.end("a")
    work.begun["c"].set_exception(ValueError("c"))
    work.begun["b"].set_exception(ValueError("b"))
    work.schedule.ended({work.begun["c"], work.begun["b"]})
    assert str(work.schedule.failure) == "b"


def test_what_is_cancelled_cancels_what_is_in_flight():
    ended: list[str] = []

    async def work(name: str) -> list[str]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
        return []

    async def cancelled() -> None:
        all_of_it = asyncio.create_task(local.aperform(lambda name: asyncio.create_task(work(name)), ["a", "b"]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        all_of_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await all_of_it
        await asyncio.sleep(0)

    asyncio.run(cancelled())
    assert ended == ["a", "b"]


class Failing(local.LocalAttempt):
    """One of a task that is done at the third attempt."""

    origin, conversation = "", Conversation()

    def record(self, decision, replayed):
        pass

    def load(self, journal: Journal) -> Loaded:
        if self.claim.failures < 2:
            raise ValueError(f"attempt {self.claim.failures}")
        return Loaded(None, self, Plan("crew", (PlannedTask("a"),)))

    def perform(self, crew: None, work: Work) -> str:
        return "done"

    def outputs(self, keys):
        return {}


class Tasks(local.LocalTasks):
    """A kickoff of that task."""

    inputs: ClassVar[dict] = {}

    def __init__(self, retries: int) -> None:
        super().__init__(lambda claim: Failing(self, claim, (retries, 0.0)), threading.RLock(), None)
        self.paused: list[float] = []

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)

    def steps(self, key: str) -> local.Steps:
        return local.Steps({})


def test_an_attempt_follows_one_that_failed_after_its_pause_until_there_are_none_left():
    tasks = Tasks(2)
    tasks.unlock([PlannedTask("a")])
    (job,) = tasks.take()
    assert tasks.perform(job) == []
    assert len(tasks.paused) == 2
    with pytest.raises(ValueError, match="attempt 1"):
        Tasks(1).perform(job)


class Around:
    """The journal of a task around a crew that is kicked off inside of it."""

    can_wait = True

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **_: self.told.append((name, *args))

    def recorded(self, under: str) -> dict[str, str]:
        return {"outer": under}

    def place(self, step: str) -> str:
        return f"around/{step}"


def test_steps_of_a_crew_inside_of_a_task_are_that_tasks_too():
    around, usage = Around(), UsageMetrics()
    steps = local.Steps({"known": "1"}, around, "a", usage)
    call = AccountKey("model", "m")
    assert steps.recorded == {"outer": "a:", "known": "1"}
    assert steps.can_wait
    assert steps.place("s") == "around/a:s"
    steps.begin_step(call, intent_only=True)
    steps.mark_sent(call)
    steps.record_step("s", "2", entry=call, usage=Usage(prompt_tokens=3, completion_tokens=2))
    steps.drop_step(call)
    steps.end({})
    assert around.told == [
        ("begin_step", call),
        ("mark_sent", call),
        ("record_step", "a:s", "2"),
        ("drop_step", call),
        ("replayed", {}),
    ]
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 2)
    assert steps.recorded["s"] == "2"


def test_steps_of_a_crew_by_itself_are_its_own():
    steps, call = local.Steps({}), AccountKey("model", "m")
    steps.begin_step(call)
    steps.mark_sent(call)
    steps.drop_step(call)
    steps.record_step("s", "1", entry=call)
    steps.end({})
    assert (steps.recorded, steps.place("s"), steps.can_wait) == ({"s": "1"}, "s", False)


def test_who_begins_after_the_stop_is_stopped_at_once():
    stops, scope = local.LocalStops(), CancelScope()
    stops.ready()
    stops.stop("the end")
    stops.pause(60)
    with pytest.raises(Interrupted, match="the end"), stops.watching(scope, None, None):
        pytest.fail("it began")


@pytest.mark.parametrize("inline", [False, True])
def test_a_write_holds_the_lock_of_the_state_however_it_is_entered(inline: bool) -> None:
    lock = threading.RLock()
    scope = local.StateCancelScope(lock)

    def is_free() -> bool:
        with ThreadPoolExecutor(1) as other:
            return other.submit(lock.acquire, blocking=False).result()

    if inline:  # as on a model call's way
        entries = scope.write.entries
        entries.append(None)
        held = not is_free()
        entries.pop()
    else:
        with scope.write:
            held = not is_free()
    assert held
    assert is_free()


def test_a_stop_reaches_the_tasks_that_are_at_work() -> None:
    stops, scope = local.LocalStops(), CancelScope()
    with stops.watching(scope, CLAIM, None):
        assert scope.stopping is None
        stops.stop("the kickoff was interrupted")
        assert isinstance(scope.stopping, Interrupted)
    with pytest.raises(Interrupted), stops.watching(CancelScope(), CLAIM, None):
        pass
