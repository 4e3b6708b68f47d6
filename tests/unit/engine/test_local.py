"""What a plan performed in this process begins when: the same rule for tasks in threads and on an event loop."""

import asyncio
from concurrent.futures import Future

import pytest

from runner.core.plan import Plan, PlannedTask, frontier
from runner.engine import local

DIAMOND = Plan(
    "crew", (PlannedTask("a"), PlannedTask("b", ("a",)), PlannedTask("c", ("a",)), PlannedTask("d", ("b", "c")))
)


class Work:
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
    work = Work(DIAMOND)
    assert [*work.begun] == ["a"]
    work.end("a")
    assert [*work.begun] == ["a", "b", "c"]
    work.end("b")
    assert [*work.begun] == ["a", "b", "c"]
    work.end("c")
    assert [*work.begun] == ["a", "b", "c", "d"]


def test_after_a_failure_nothing_begins_and_what_is_in_flight_ends():
    work = Work(DIAMOND)
    work.end("a")
    work.end("b", error=ValueError("first"))
    assert work.schedule.in_flight
    work.end("c", error=ValueError("second"))
    assert not work.schedule.in_flight
    assert str(work.schedule.failure) == "first"
    assert "d" not in work.begun


def test_of_those_that_fail_together_the_one_that_began_first_counts():
    work = Work(DIAMOND)
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
