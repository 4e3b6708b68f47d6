"""What a run does on real workers when nobody kills anything: checkpoints, isolation, retries, timeouts, cancelling."""

import json
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.providers.redis import keys
from runner.providers.redis.keys import queue_of
from runner.providers.redis.protocol import PROTOCOL

pytestmark = pytest.mark.timeout(120)


def test_max_checkpoints_and_resuming_from_each_kept_one(
    fleet: Any, client: Client, crew_of: Any, redis: Redis, trace: Any
) -> None:
    # Given a run of 20 tasks, each made of the one before, that keeps three checkpoints
    fleet.start("--concurrency", "1")
    crew = crew_of("""
        def link(i):
            def run(ctx):
                before = ctx.outputs[f"t{i - 1}"].raw if i else ""
                return before + chr(97 + i)
            return run
        crew = Crew(tasks=[Task(name=f"t{i}", run=link(i)) for i in range(20)])
    """)
    handle = client.submit(crew, max_checkpoints=3)
    key = keys.key("checkpoints_key", branch_key=keys.branch_key(handle.id, "main"))
    most = 0
    while handle.status == "running":
        most = max(most, redis.zcard(key))
    first = handle.wait()
    assert most <= 3
    kept = client.checkpoints(handle.id)
    assert [c.task for c in kept] == ["t17", "t18", "t19"]
    assert len({c.id for c in kept}) == 3
    assert kept[1].parent == kept[0].id
    # When it is resumed from each of them
    for checkpoint in kept:
        resumed = client.resume(handle.id, checkpoint=checkpoint.id)
        result = resumed.wait(30)
        # Then each gives the same result, and the first branch keeps what it had
        assert (result.status, result.result, result.outputs) == ("completed", first.result, first.outputs)
        assert client.checkpoints(handle.id, "main") == kept


def test_code_that_changed_is_seen_by_a_client_that_knew_it_before(fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--concurrency", "1")
    crew = crew_of("""
        from runner import Crew, Task
        def write(ctx):
            raise LookupError("no ink")
        crew = Crew(tasks=[Task(name="write", run=write)])
    """)
    handle = client.submit(crew)
    assert handle.wait(30).status == "failed"
    changed = crew.read_text().replace('raise LookupError("no ink")', 'return "the end"')
    crew.write_text(changed.replace("tasks=[", 'tasks=[Task(name="before", run=lambda ctx: "x"), '))
    result = client.resume(handle.id, accept_code_change=True).wait(30)
    assert (result.status, result.outputs) == ("completed", {"before": "x", "write": "the end"})
    assert client.submit(crew).wait(30).outputs == result.outputs


def test_two_crews_with_modules_of_the_same_names(fleet: Any, client: Client, write_crew: Any) -> None:
    """One child does both by turns, with lazy imports; neither sees the other's modules, nor ours."""
    fleet.start("--concurrency", "1")
    code = """
        import time
        from runner import Crew, Task
        import tasks
        def one(ctx):
            import providers, tools
            ctx.step("wait", time.sleep, 0.1)
            from tools import WHO
            seen = f"{tasks.WHO} {providers.WHO} {tools.WHO} {WHO}"
            return f"{seen} {ctx.outputs['zero'].raw}" if "zero" in ctx.outputs else "0"
        crew = Crew(tasks=[Task(name="zero", run=one), Task(name="one", run=one), Task(name="two", run=one)])
    """
    handles = []
    for who in ("left", "right"):
        beside = {f"{name}__py": f"WHO = '{who}'" for name in ("tasks", "tools", "providers")}
        handles.append(client.submit(write_crew(code, who, **beside)))
    left, right = [handle.wait(60) for handle in handles]
    assert left.outputs["two"] == "left left left left 0"
    assert right.outputs["two"] == "right right right right 0"


def test_data_files_come_along(fleet: Any, client: Client, write_crew: Any) -> None:
    fleet.start("--concurrency", "1")
    crew = write_crew(
        """
        from pathlib import Path
        from runner import Crew, Task
        crew = Crew(tasks=[Task(name="read", run=lambda ctx: (Path(__file__).parent / "agents.yaml").read_text())])
        """,
        agents__yaml="role: reader\n",
    )
    assert client.submit(crew).wait(60).result == "role: reader\n"


@pytest.mark.usefixtures("started_afresh")
def test_a_missing_dependency_fails_the_run_and_it_can_be_resumed(
    fleet: Any, client: Client, write_crew: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a module that is here and not on the worker
    library = tmp_path / "library"
    library.mkdir()
    (library / "only_here_xyz.py").write_text("ANSWER = 42")
    monkeypatch.syspath_prepend(str(library))
    crew = write_crew("""
        import only_here_xyz
        from runner import Crew, Task
        crew = Crew(tasks=[Task(name="ask", run=lambda ctx: str(only_here_xyz.ANSWER))])
    """)
    first = fleet.start("--concurrency", "1")
    handle = client.submit(crew)
    result = handle.wait(60)
    # Then the run fails with its name and the host
    assert result.status == "failed"
    assert "only_here_xyz" in str(result.error)
    assert first.about()["host"] in str(result.error)
    # When a worker has it, the run is resumed and completes
    first.kill_group()
    fleet.start("--concurrency", "1", PYTHONPATH=str(library))
    assert client.resume(handle.id).wait(60).result == "42"


def test_retries_replay_steps_and_timeouts_are_failures(fleet: Any, client: Client, crew_of: Any, trace: Any) -> None:
    fleet.start("--concurrency", "2")
    crew = crew_of("""
        def shaky(ctx):
            value = ctx.step("work", work, "shaky", 0, 0)
            if ctx.attempt < 3:
                raise ValueError(f"attempt {ctx.attempt}")
            return value
        def slow(ctx):
            if ctx.attempt == 1:
                try:
                    time.sleep(60)
                except Exception:
                    return "swallowed"
            return f"attempt {ctx.attempt}"
        crew = Crew(tasks=[
            Task(name="shaky", run=shaky, max_retries=2, retry_delay=0.05, async_execution=True),
            Task(name="slow", run=slow, timeout=1, max_retries=1, retry_delay=0.05, async_execution=True),
        ])
    """)
    handle = client.submit(crew)
    result = handle.wait(60)
    assert result.status == "completed", result
    assert result.outputs["slow"] == "attempt 2"
    assert trace.steps()["step shaky 0"] == 1
    reasons = [e.fields["reason"] for e in handle.events() if e.type == "task_retried"]
    assert any("timeout of 1 s" in reason for reason in reasons)
    assert any(reason.startswith("ValueError: attempt 1") and "crew.py:" in reason for reason in reasons)


def test_no_attempts_left_fails_the_run_with_the_reason(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    """What runs beside the failing task is not lost; resuming does only what is left."""
    fleet.start("--concurrency", "2")
    crew = crew_of(
        """
        def bad(ctx):
            until("task long 1")
            if not os.path.exists(GO):
                raise ValueError("not yet")
            return "good"
        crew = Crew(process=Process.graph, tasks=[
            Task(name="long", run=steps("long", 10, 0.05), context=[]),
            Task(name="bad", run=bad, context=[]),
            end := Task(name="end", run=lambda ctx: "end"),
        ])
        end.context = crew.tasks[:2]
    """.replace("GO", repr(str(trace.path.parent / "go")))
    )
    handle = client.submit(crew)
    result = handle.wait(60)
    assert (result.status, int(result.exit_code)) == ("failed", 1)
    assert str(result.error).startswith("task 'bad': ValueError: not yet (crew.py:")
    eventually(lambda: "long" in handle.result().outputs, why="what was at work is kept")
    (trace.path.parent / "go").touch()
    result = client.resume(handle.id).wait(60)
    assert (result.status, result.outputs["end"]) == ("completed", "end")
    assert sum(trace.steps().values()) == 10


@pytest.mark.usefixtures("started_afresh")
@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_cancel_stops_a_task_in_a_call_and_resume_goes_on(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1", "--pool", pool)
    crew = crew_of("""
        def run(ctx):
            ctx.step("work", work, "before", 0, 0)
            if ctx.attempt == 1:
                trace("in the call")
                ctx.step("long", lambda: [time.sleep(0.05) for _ in range(1200)] and None)
            return "done"
        crew = Crew(tasks=[Task(name="t", run=run)])
    """)
    handle = client.submit(crew)
    eventually(lambda: "in the call" in trace.lines(), why="the call")
    handle.cancel()
    result = handle.wait(30)
    assert (result.status, int(result.exit_code)) == ("cancelled", 3)
    eventually(lambda: client.store.workers.claimed(worker.about()["id"]) == 0, why="the claim is gone")
    # The slot is free again: the call was broken off, and the run goes on without doing the recorded step again.
    result = client.resume(handle.id).wait(60)
    assert result.status == "completed"
    assert trace.steps()["step before 0"] == 1


def test_async_callables_and_models(fleet: Any, client: Client, write_crew: Any) -> None:
    fleet.start("--concurrency", "1")
    crew = write_crew("""
        import asyncio
        from pydantic import BaseModel
        from runner import Crew, Task
        class Page(BaseModel):
            url: str
            words: int
        async def fetch(url: str) -> Page:
            await asyncio.sleep(0.01)
            return Page(url=url, words=len(url))
        async def collect(ctx) -> Page:
            pages = await asyncio.gather(*[ctx.step("fetch", fetch, "x" * i) for i in range(4)])
            ctx.log("collected"); ctx.progress(4, 4, "pages")
            return max(pages, key=lambda page: page.words)
        def tell(ctx):
            page = ctx.outputs["collect"].pydantic
            return f"{type(page).__name__} {page.words} {ctx.outputs['collect'].json_dict['url']}"
        crew = Crew(tasks=[Task(name="collect", run=collect), Task(name="tell", run=tell)])
    """)
    handle = client.submit(crew)
    assert handle.wait(60).result == "Page 3 xxx"
    assert {"task_log", "task_progress"} <= {e.type for e in handle.events()}


def test_another_broker_than_the_state(fleet: Any, server: Any, crew_of: Any) -> None:
    """Jobs go through the outbox where the committing script cannot push them itself."""
    broker = f"redis+socket://{server.socket}?virtual_host=5"
    fleet.start("--concurrency", "1", "--broker-url", broker)
    crew = crew_of('crew = Crew(tasks=[Task(name=n, run=steps(n, 1, 0)) for n in "abc"])')
    done = fleet.runner("submit", str(crew), "--broker-url", broker, "--json")
    assert done.returncode == 0, done.stderr
    with Redis.from_url(f"{server.url}?db=5") as other:
        other.flushdb()


def test_a_finished_run_expires(fleet: Any, client: Client, crew_of: Any, redis: Redis, eventually: Any) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])'), keep=3)
    handle.wait(30)
    run_keys = list(redis.scan_iter(f"*{handle.id}*"))
    assert all(redis.pttl(key) != -1 for key in run_keys)
    eventually(lambda: not list(redis.scan_iter(f"*{handle.id}*")), why="the run's keys expire")
    eventually(lambda: not list(redis.scan_iter("*:bundle:*")), why="so does its bundle")


def test_doctor_tells_which_protocols_there_are_and_fails_where_runs_wait_for_a_worker(
    client: Client, crew_of: Any, redis: Redis, fleet: Any
) -> None:
    def protocols() -> tuple[int, str, str]:
        said = fleet.runner("doctor", "--json")
        (found,) = [one for one in json.loads(said.stdout) if one["what"] == "store protocol"]
        return said.returncode, found["found"], found.get("hint", "")

    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])'), queue="nobody's")
    told = f"this is {PROTOCOL}, 1 worker of {PROTOCOL}, 1 run of "
    assert protocols()[:2] == (0, f"{told}{PROTOCOL}")
    redis.hset(keys.run_key(handle.id), "protocol", PROTOCOL + 1)
    code, found, hint = protocols()
    assert (code, found) == (1, f"{told}{PROTOCOL + 1}")
    assert hint == "1 of them needs a worker of a newer version: start one"


def test_a_message_lost_from_a_queue_that_is_not_empty_is_sent_again(
    client: Client, crew_of: Any, redis: Redis, eventually: Any, fleet: Any
) -> None:
    # Given two runs in a queue that nobody serves, and a message that is lost
    crew = crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])')
    lost, waiting = client.submit(crew, queue="slow"), client.submit(crew, queue="slow")
    message = redis.rpop(queue_of("slow"))
    assert lost.id in message
    # When a supervisor has looked into the queue twice
    fleet.start("--concurrency", "1", "--queue", "other")
    eventually(lambda: any(lost.id in m for m in redis.lrange(queue_of("slow"), 0, -1)), why="it is sent again")
    # Then both complete as soon as somebody serves it
    fleet.start("--concurrency", "1", "--queue", "slow")
    assert {lost.wait(30).status, waiting.wait(30).status} == {"completed"}


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_profile_of_a_task_ends_on_a_worker_whose_tasks_have_timeouts(
    pool: str, fleet: Any, client: Client, write_crew: Any
) -> None:
    crew = """
        import cProfile, sys, time
        from runner import Crew, Task

        def busy(ctx):
            while True:
                time.sleep(0)

        def quick(ctx):
            return sum(i for i in range(1000))

        def profiled(ctx):
            profile = cProfile.Profile()
            profile.runcall(quick, ctx)
            lines = []
            sys.settrace(lambda frame, event, arg: lines.append(event))
            quick(ctx)
            sys.settrace(None)
            return f"{quick.__name__} {len(lines)}"

        first = [Task(name="a", run=quick, timeout=60), Task(name="b", run=busy, timeout=0.2)]
        slow = Crew(tasks=first)
        crew = Crew(tasks=[Task(name="p", run=profiled, timeout=60), Task(name="q", run=profiled, timeout=60)])
    """
    fleet.start("--concurrency", "1", "--pool", pool)
    path = write_crew(crew)
    slow = client.submit(f"{path}:slow").wait(timeout=60)
    assert slow.error == "task 'b': it ran longer than its timeout of 0.2 s"
    result = client.submit(f"{path}:crew").wait(timeout=60)
    assert (result.status, result.result.split()[0]) == ("completed", "quick")


def test_a_task_may_use_multiprocessing(fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--concurrency", "1")
    crew = crew_of("""
        import multiprocessing

        def several(ctx):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                return str(pool.map(abs, [-1, -2, -3]))

        crew = Crew(tasks=[Task(name="several", run=several)])
    """)
    result = client.submit(crew).wait(60)
    assert (result.status, result.result) == ("completed", "[1, 2, 3]"), result.error
