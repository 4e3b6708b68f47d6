"""``max_rpm``: calls of models wait for their turn, where a stop finds them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner import Agent, BaseLLM, Crew, Task
from runner.core.errors import Interrupted
from runner.journal import rate_limit
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.rate_limit import RateLimiter, delays
from runner.testing import ManualClock, ModelServer


def test_a_turn_is_there_when_a_minute_has_gone_since_the_first() -> None:
    clock = ManualClock()
    pace = RateLimiter(clock=clock)
    both = [("crew", 3), ("agent A", 2)]
    assert [pace.acquire(both), pace.acquire([("crew", 3)]), pace.acquire(both)] == [0, 0, 0]
    clock.advance(20)
    assert pace.acquire([("crew", 3)]) == 40
    assert pace.acquire([("agent A", 2)]) == 40, "nothing was taken in vain"
    clock.advance(40)
    assert [pace.acquire(both), pace.acquire(both)] == [0, 0]
    assert pace.acquire(both) == 60


def test_who_awaits_can_be_stopped() -> None:
    cancel_scope, pace, clock = CancelScope(), RateLimiter(), ManualClock()
    pace.acquire([("crew", 1)])
    slept = delays(pace, [("crew", 1)], cancel_scope, clock)
    assert next(slept) == rate_limit.LOOK
    cancel_scope.ask(Interrupted("the worker is draining"))
    with pytest.raises(Interrupted):
        next(slept)


class Asleep:
    """Time stands still until somebody wakes who waits; it is told when that is asleep."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.waits: list[float] = []

    def wait(self, asleep: Callable[[float], object], seconds: float) -> None:
        self.waits.append(seconds)
        self.begun.set()
        assert asleep(60), "nobody woke it"


def test_a_stop_wakes_who_waits_who_does_not_look_for_it() -> None:
    clock: Any = Asleep()
    cancel_scope, pace, stopped = (
        CancelScope(clock),
        RateLimiter(clock=ManualClock()),
        Interrupted("the worker is draining"),
    )
    pace.acquire([("crew", 1)])
    with ThreadPoolExecutor(1) as pool:  # not on the task's own thread, where it could be raised
        waiting = pool.submit(rate_limit.wait, pace, [("crew", 1)], cancel_scope)
        assert clock.begun.wait(30)
        cancel_scope.ask(stopped)
        assert waiting.exception(30) is stopped
    assert clock.waits == [60.0], "it is asleep until its turn"


def test_who_waits_has_its_turn_when_a_minute_has_gone() -> None:
    clock = ManualClock()
    pace, began = RateLimiter(clock=clock), clock.now()
    for _ in range(3):
        rate_limit.wait(pace, [("crew", 1)], CancelScope(clock))
    assert clock.now() - began == 120


@pytest.mark.slow
@pytest.mark.parametrize("where", ["crew", "agent", "function", "awaits"])
def test_calls_in_this_process_wait(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of agents, of models of one's own, and of functions that use a vendor's client."""
    monkeypatch.setattr(rate_limit, "LOOK", 0.01)
    waited: list[float] = []

    def acquire(pace: RateLimiter, limits: list[rate_limit.Limit]) -> float:
        waited.append(limits[0][1])
        return 0.0 if len(waited) % 2 == 0 else 0.001

    monkeypatch.setattr(RateLimiter, "acquire", acquire)

    class Own(BaseLLM):
        def call(self, messages, tools=None, **options):
            return "said"

    with ModelServer("said") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")

        def ask(ctx):
            import openai

            with openai.OpenAI() as client:
                answer = client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "it"}])
            return answer.choices[0].message.content

        async def ask_awaited(ctx):
            import openai

            async with openai.AsyncOpenAI() as client:
                answer = await client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "it"}])
            return answer.choices[0].message.content

        one = Agent(role="A", llm="openai/gpt", max_rpm=2 if where == "agent" else None)
        other = Agent(role="B", llm=Own("own"), max_rpm=2 if where == "agent" else None)
        tasks = [Task(name="a", description="it", agent=one), Task(name="b", description="it", agent=other)]
        if where in ("function", "awaits"):
            tasks = [Task(name="c", run=ask if where == "function" else ask_awaited)]
        crew = Crew(tasks=tasks, max_rpm=None if where == "agent" else 2)
        assert crew.kickoff().raw == "said"
    assert waited == [2, 2] * len(tasks)
