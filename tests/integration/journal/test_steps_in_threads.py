"""`ctx.step` in threads that were given no context: it is the task's step all the same."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, JsonProvider, Task
from runner.events import BaseEvent, event_bus

SHARED = ThreadPoolExecutor(2)  # its threads have seen other tasks before


def square(n: int) -> int:
    return n * n


async def asquare(n: int) -> int:
    await asyncio.sleep(0)
    return n * n


def in_own_pool(ctx: Any) -> list[int]:
    with ThreadPoolExecutor(4) as pool:
        return [one.result() for one in [pool.submit(ctx.step, "square", square, n) for n in range(5)]]


def in_a_shared_pool(ctx: Any) -> list[int]:
    return [one.result() for one in [SHARED.submit(ctx.step, "square", square, n) for n in range(5)]]


def in_bare_threads(ctx: Any) -> list[int]:
    found: dict[int, int] = {}

    def work(n: int) -> None:
        found[n] = ctx.step("square", square, n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[n] for n in range(5)]


def in_loops_of_threads(ctx: Any) -> list[int]:
    async def one(n: int) -> int:
        return int(await ctx.step("square", asquare, n))

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda n: asyncio.run(one(n)), range(5)))


async def to_thread(ctx: Any) -> list[int]:
    return list(await asyncio.gather(*(asyncio.to_thread(ctx.step, "square", square, n) for n in range(5))))


WAYS = [in_own_pool, in_a_shared_pool, in_bare_threads, in_loops_of_threads, to_thread]


@pytest.mark.parametrize("way", WAYS)
def test_a_step_in_a_thread_is_the_tasks_and_triggers_checkpoints(way: Any, tmp_path: Path) -> None:
    heard: list[BaseEvent] = []
    config = CheckpointConfig(location=str(tmp_path / "kept"), on_events=["tool_usage_finished"])
    crew = Crew(tasks=[Task(name="before", run=lambda ctx: "x"), Task(name="a", run=way)], checkpoint=config)
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda _, event: heard.append(event))
        assert crew.kickoff().json_dict == [0, 1, 4, 9, 16]
        assert event_bus.flush()
    begun = next(e for e in heard if e.type == "task_started" and e.task_name == "a")
    ended = next(e for e in heard if e.type == "task_completed" and e.task_name == "a")
    tools = [e for e in heard if e.type.startswith("tool_usage_")]
    assert len(tools) == 10
    assert {(e.parent_event_id, e.task_id, e.task_name) for e in tools} == {(begun.event_id, begun.task_id, "a")}
    assert all(begun.emission_sequence < e.emission_sequence < ended.emission_sequence for e in tools)
    assert len(JsonProvider().checkpoints(str(tmp_path / "kept"))) == 5
