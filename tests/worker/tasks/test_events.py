"""Events on the fleet: what a crew's handlers hear, what its code tells, and that it stays one sequence over kills."""

import contextlib
import json
import os
import random
import signal
import textwrap
import time
from collections import Counter
from typing import Any

import pytest

from runner.client import Client
from runner.events import event_id_of

SEED = int(os.environ.get("RUNNER_TEST_SEED", "7"))

LISTENING = """
    import json
    from runner.events import BaseEvent, TaskStartedEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent, event_bus

    SECRET = "sk-live-0123456789"

    @event_bus.on("*")
    def heard(source, event):
        said = {"name": NAME, "type": event.type, "seq": event.emission_sequence, "id": event.event_id}
        said |= {"parent": event.parent_event_id, "started": event.started_event_id, "task": event.task_id}
        said |= {"output": str(getattr(event, "output", None)), "source": type(source).__name__}
        trace("heard " + json.dumps(said))

    def use_tool(label, inside=lambda: None):
        event_bus.emit(None, ToolUsageStartedEvent(tool_name="hammer", tool_args={"key": SECRET}))
        inside()
        event_bus.emit(None, BaseEvent(type="my_own", text=SECRET))
        event_bus.emit(None, ToolUsageFinishedEvent(tool_name="hammer", output=SECRET))
"""


def listening(tasks: str) -> str:
    return textwrap.dedent(LISTENING) + textwrap.dedent(tasks)


def heard(trace: Any, name: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line.removeprefix("heard ")) for line in trace.lines() if line.startswith("heard ")]
    return sorted((one for one in found if name in (None, one["name"])), key=lambda one: one["seq"])


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_handlers_of_the_crew_file_hear_what_the_store_tells(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, well_told: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "2", "--pool", pool)
    tasks = """
        NAME = "one"
        def first(ctx):
            use_tool("a")
            return "out"
        crew = Crew(tasks=[Task(name="a", run=first), Task(name="b", run=lambda ctx: "second")])
    """
    handle = client.submit(crew_of(listening(tasks)))
    assert handle.wait(60).status == "completed"
    events = well_told(handle)
    eventually(lambda: len(heard(trace)) >= 9, why="handlers hear after the store")
    assert [(one["type"], one["task"]) for one in heard(trace)] == [
        ("crew_kickoff_started", None),
        ("task_started", "a"),
        *[("tool_usage_started", None), ("my_own", None), ("tool_usage_finished", None)],
        ("task_completed", "a"),
        ("task_started", "b"),
        ("task_completed", "b"),
        ("crew_kickoff_completed", None),
    ]
    # what is told here and what is told there is the same
    for event, one in zip(events, heard(trace), strict=True):
        assert (event.type, event.seq, event.event_id) == (one["type"], one["seq"], one["id"])
        assert (event.parent_event_id, event.started_event_id) == (one["parent"], one["started"])
        assert event.event_id == event_id_of(handle.id, event.seq)
    by_type = {(one["type"], one["task"]): one for one in heard(trace)}
    assert by_type["task_completed", "b"]["output"] == "second"
    assert by_type["task_completed", "b"]["source"] == "Task"
    assert by_type["crew_kickoff_completed", None]["source"] == "Crew"


def test_what_code_tells_has_its_place_and_says_nothing(
    fleet: Any, client: Client, crew_of: Any, redis: Any, well_told: Any
) -> None:
    fleet.start("--concurrency", "2")
    tasks = """
        NAME = "one"
        import asyncio, contextvars, threading

        def threads(ctx):
            call = lambda: use_tool("t")
            started = [threading.Thread(target=contextvars.copy_context().run, args=(call,)) for _ in range(5)]
            [one.start() for one in started]
            [one.join() for one in started]

        async def gathered(ctx):
            async def one():
                event_bus.emit(None, ToolUsageStartedEvent(tool_name="hammer"))
                await asyncio.sleep(0)
                event_bus.emit(None, ToolUsageFinishedEvent(tool_name="hammer"))
            await asyncio.gather(*(one() for _ in range(5)))

        def nested(ctx):
            inner = Crew(name="inner", tasks=[Task(name="x", run=lambda ctx: use_tool("n"))])
            use_tool("around", inner.kickoff)

        crew = Crew(tasks=[
            Task(name="threads", run=threads, async_execution=True),
            Task(name="gathered", run=gathered, async_execution=True),
            Task(name="nested", run=nested),
        ])
    """
    handle = client.submit(crew_of(listening(tasks)))
    assert handle.wait(60).status == "completed"
    events = well_told(handle)
    by_seq = {event.seq: event for event in events}
    starts = {e.fields["task"]: e.seq for e in events if e.type == "task_started"}
    for name in ("threads", "gathered"):
        tools = [e for e in events if e.type == "tool_usage_started" and e.fields["task"] == name]
        assert [event.parent for event in tools] == [starts[name]] * 5
    own = [event for event in events if event.type == "my_own"]
    assert {by_seq[event.parent].type for event in own} == {"tool_usage_started"}
    # a crew inside of a task tells of tasks of its own, under that task
    [inner] = [e for e in events if e.type == "crew_kickoff_started" and "task" in e.fields]
    assert by_seq[inner.parent].type == "tool_usage_started"
    [task] = [e for e in events if e.type == "task_started" and e.parent == inner.seq]
    assert task.fields["task"].startswith("nested/")
    assert set(redis.hkeys(f"runner:{{p0}}:run:{handle.id}:branch:main:outputs")) == {"threads", "gathered", "nested"}
    # nothing of what was said is anywhere
    assert not [event for event in events if "sk-live" in str(event.to_dict())]
    for key in redis.scan_iter("*:events"):
        assert "sk-live" not in str(redis.xrange(key))


def test_crews_in_one_process_do_not_hear_each_other(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", "threads")
    for name in ("one", "two"):
        tasks = f"""
            NAME = {name!r}
            crew = Crew(name=NAME, tasks=[Task(name=NAME, run=lambda ctx: use_tool(NAME))])
        """
        assert client.submit(crew_of(listening(tasks), name)).wait(60).status == "completed"
    eventually(lambda: len(heard(trace)) >= 14, why="handlers hear after the store")
    told = Counter((one["name"], one["task"]) for one in heard(trace) if one["type"] == "task_completed")
    assert told == {("one", "one"): 1, ("two", "two"): 1}
    assert Counter(one["name"] for one in heard(trace)) == {"one": 7, "two": 7}


def test_a_failed_and_resumed_task_is_heard_as_it_is(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "1")
    tasks = """
        NAME = "one"
        def run(ctx):
            if ctx.attempt < 3:
                raise ValueError("not yet")
            return "done"
        crew = Crew(tasks=[Task(name="a", run=run, max_retries=1, retry_delay=0, callback=print)])
    """
    handle = client.submit(crew_of(listening(tasks)))
    assert handle.wait(60).status == "failed"
    result = client.resume(handle.id).wait(60)
    assert result.status == "completed"
    eventually(lambda: len(heard(trace)) >= 9, why="handlers hear after the store")
    assert [one["type"] for one in heard(trace)] == [
        *("crew_kickoff_started", "task_started", "task_resumed", "task_failed", "crew_kickoff_failed"),
        *("crew_kickoff_started", "task_started", "task_completed", "crew_kickoff_completed"),
    ]
    events = list(client.run(handle.id).events())
    assert [e.type for e in events if e.type.startswith(("task", "crew", "run"))] == [
        *("crew_kickoff_started", "task_started", "task_retried", "task_resumed", "task_failed", "crew_kickoff_failed"),
        *("run_resumed", "task_started", "task_completed", "crew_kickoff_completed"),
    ]


def test_what_handlers_do_is_done_before_the_worker_ends(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1")
    tasks = """
        from runner.events import event_bus
        @event_bus.on("task_completed")
        def slowly(source, event):
            time.sleep(0.5)
            trace("heard it")
        crew = Crew(tasks=[Task(name="a", run=lambda ctx: "done")])
    """
    handle = client.submit(crew_of(tasks))
    assert handle.wait(60).status == "completed"
    worker.terminate()
    eventually(lambda: worker.process.poll() is not None, why="the worker ends")
    assert trace.lines() == ["heard it"]


def test_a_steps_events_are_told_where_the_run_wants_them(
    fleet: Any, client: Client, crew_of: Any, well_told: Any
) -> None:
    fleet.start("--concurrency", "1")
    tasks = """
        from runner import CheckpointConfig
        config = CheckpointConfig(on_events=["tool_usage_finished"])
        crew = Crew(tasks=[Task(name="a", run=steps("a", 3, 0))], checkpoint=config)
        quiet = Crew(tasks=[Task(name="a", run=steps("a", 3, 0))])
    """
    path = crew_of(tasks)
    handle = client.submit(f"{path}:crew")
    assert handle.wait(60).status == "completed"
    told = Counter(event.type for event in well_told(handle))
    assert (told["tool_usage_started"], told["tool_usage_finished"]) == (3, 3)
    assert [record.trigger for record in client.checkpoints(handle.id)] == ["tool_usage_finished"] * 3
    handle = client.submit(f"{path}:quiet")
    assert handle.wait(60).status == "completed"
    assert len(well_told(handle)) == 4, "nobody asked"


KILLED = """
    from runner.events import ToolUsageFinishedEvent, ToolUsageStartedEvent, event_bus

    def told(label, n):
        def run(ctx):
            for i in range(n):
                event_bus.emit(None, ToolUsageStartedEvent(tool_name=label))
                ctx.step("work", work, label, i, 0.03)
                event_bus.emit(None, ToolUsageFinishedEvent(tool_name=label))
            return label
        return run

    crew = Crew(tasks=[
        Task(name="held", run=steps("held", 1, 0, held_at=0)),
        Task(name="first", run=told("first", 3)),
        *(Task(name=f"side{i}", run=told(f"side{i}", 12), async_execution=True) for i in range(4)),
        Task(name="last", run=told("last", 3)),
    ])
"""


def test_parallel_tasks_that_are_killed_are_told_once(
    fleet: Any, client: Client, redis: Any, crew_of: Any, trace: Any, reconcile: Any, well_told: Any, eventually: Any
) -> None:
    """Workers and pool children die, are stopped and asked to end; each task has one start and one end all the same."""
    rand = random.Random(SEED)
    for _ in range(3):
        fleet.start("--concurrency", "2", "--lease", "1", wait=False, RUNNER_MAX_ATTEMPTS="50")
    for worker in fleet.workers:
        worker.ready()
    handle = client.submit(crew_of(KILLED))
    records = f"runner:{{p0}}:run:{handle.id}:branch:main:task:*"

    def busy() -> list[int]:
        return [int(pid) for record in redis.scan_iter(records) if (pid := redis.hget(record, "process"))]

    eventually(lambda: trace.held("held"), why="the first task is in flight")
    os.kill(busy()[0], signal.SIGKILL)
    trace.let_go()
    blows = 0
    while client.store.runs.status(handle.id).value == "running" and blows < 30:
        time.sleep(rand.uniform(0.02, 0.15))  # the pace of the blows
        living = [worker for worker in fleet.workers if worker.process.poll() is None]
        if len(living) < 3:
            fleet.start("--concurrency", "2", "--lease", "1", wait=False, RUNNER_MAX_ATTEMPTS="50")
        worker = rand.choice(living)
        if (pids := busy()) and rand.random() < 0.7:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rand.choice(pids), rand.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        elif len(living) > 1:
            worker.kill_group() if rand.random() < 0.7 else worker.terminate()
        blows += 1
    # Those that were asked to end may all be at it still.
    fleet.start("--concurrency", "2", "--lease", "1", wait=False, RUNNER_MAX_ATTEMPTS="50")
    result = handle.wait(90)
    assert result.status == "completed", result
    reconcile(client, handle)
    events = well_told(handle)
    assert result.recoveries > 0
    told = Counter(event.type for event in events)
    print(f"seed {SEED}: {blows} blows, {result.recoveries} recoveries, {len(events)} events, {told}")
    assert told["tool_usage_started"] == told["tool_usage_finished"] + told["tool_usage_error"]
