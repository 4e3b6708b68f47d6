"""Flows on real workers: each method a job, its change of the state committed with it, and kills that cost nothing."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import BadInput

#: Counts in a loop, with two branches side by side in each round that change the same state.
LOOP = """
    ROUNDS = {rounds}

    class Count(BaseModel):
        rounds: int = 0
        left: int = 0
        right: int = 0
        log: list[str] = []

    class Loop(Flow[Count]):
        max_method_calls = 1000

        @start("again")
        def begin(self):
            self.step("work", work, "begin", self.state.rounds, 0.0)
            self.state.rounds += 1
            return self.state.rounds

        @listen(begin)
        def left(self, n):
            self.state.left += 1
            self.state.log.append(f"left {{n}}")
            trace(f"method left {{n}}")

        @listen(begin)
        def right(self, n):
            self.state.right += 1
            self.state.log.append(f"right {{n}}")
            trace(f"method right {{n}}")

        @router(and_(left, right))
        def enough(self):
            return "again" if self.state.rounds < ROUNDS else "done"

        @listen("done")
        def end(self):
            return {{"rounds": self.state.rounds, "left": self.state.left, "right": self.state.right,
                    "log": sorted(self.state.log)}}
    """


def counted(rounds: int) -> dict[str, Any]:
    """What `LOOP` comes to if each change of the state was made once."""
    log = sorted(f"{side} {n}" for side in ("left", "right") for n in range(1, rounds + 1))
    return {"rounds": rounds, "left": rounds, "right": rounds, "log": log}


def result_of(result: Any) -> Any:
    assert result.status == "completed", result
    return json.loads(result.result)


def test_a_flow_from_submit_to_result(fleet: Any, client: Client, flow_of: Any, well_told: Callable[..., Any]) -> None:
    fleet.start("--concurrency", "4")
    handle = client.submit(flow_of(LOOP.format(rounds=3)), {"left": 10})
    result = handle.wait(60)
    assert result_of(result) == {**counted(3), "left": 13}
    assert Counter(key.partition("#")[0] for key in result.outputs) == {
        "begin": 3, "left": 3, "right": 3, "enough": 3, "end": 1,
    }  # fmt: skip
    well_told(handle)
    assert [line.status for line in handle.branches] == ["completed"]


def test_branches_of_a_flow_run_side_by_side_and_a_real_conflict_is_told(
    fleet: Any, client: Client, flow_of: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "2")
    handle = client.submit(
        flow_of(f"""
            HERE = {str(tmp_path)!r}

            def meet(me, other):
                open(f"{{HERE}}/{{me}}", "w").close()
                end = time.monotonic() + 30
                while not os.path.exists(f"{{HERE}}/{{other}}") and time.monotonic() < end:
                    time.sleep(0.01)
                return os.path.exists(f"{{HERE}}/{{other}}")

            class Sides(Flow[dict]):
                @start()
                def one(self):
                    self.state.update(met_one=meet("one", "other"), winner="one", n=self.state.get("n", 0) + 1)
                    self.state.setdefault("items", []).append("one")

                @start()
                def other(self):
                    self.state.update(met_other=meet("other", "one"), winner="other", n=self.state.get("n", 0) + 1)
                    self.state.setdefault("items", []).append("other")

                @listen(and_(one, other))
                def end(self):
                    return {{**self.state, "items": sorted(self.state["items"])}}
            """)
    )
    found = result_of(handle.wait(60))
    last = next(
        e.fields["task"]
        for e in reversed(list(handle.events()))
        if e.type == "task_completed" and e.fields["task"] != "end"
    )
    assert {k: v for k, v in found.items() if k != "id"} == {
        "met_one": True, "met_other": True, "items": ["one", "other"], "winner": last, "n": 1,
    }  # fmt: skip
    (conflict,) = [event for event in handle.events() if event.type == "flow_state_conflict"]
    assert conflict.fields["task"] == last
    first = "one" if last == "other" else "other"
    paths, _, told = conflict.fields["text"].partition(": ")
    assert sorted(paths.split(", ")) == ["n", "winner"]
    assert told == f"changed by {first} while {last} was at work; the values of {last} are kept, since it finished last"


POINTS = [
    "job received, not claimed",
    "claimed, not begun",
    "step begun, not done",
    "step done, not recorded",
    "step recorded, task not ended",
    "task done, not committed",
    "growth decided, not committed",
    "task committed, job not ended",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_dies_here_and_no_change_is_lost_or_made_twice(
    point: str, fleet: Any, client: Client, flow_of: Any, reconcile: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "2", RUNNER_CRASH_AT=f"{point}:{flag}")
    handle = client.submit(flow_of(LOOP.format(rounds=3)))
    result = handle.wait(60)
    assert flag.exists()
    assert result_of(result) == counted(3)
    reconcile(client, handle)


def test_workers_are_killed_at_random_and_the_count_is_right(
    fleet: Any, client: Client, flow_of: Any, reconcile: Any, eventually: Callable[..., Any]
) -> None:
    chance = random.Random(7)
    for _ in range(2):
        fleet.start("--concurrency", "2")
    handle = client.submit(flow_of(LOOP.format(rounds=40)))
    for done in (20, 60, 100):
        eventually(lambda done=done: len(handle.result().outputs) >= done, within=60, why=f"{done} methods")
        chance.choice([w for w in fleet.workers if w.process.poll() is None]).kill_group()
        fleet.start("--concurrency", "2")
    assert result_of(handle.wait(120)) == counted(40)
    reconcile(client, handle)


def test_a_method_is_tried_again_and_its_steps_are_replayed(
    fleet: Any, client: Client, flow_of: Any, trace: Any, reconcile: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(
        flow_of(f"""
            class Flaky(Flow[dict]):
                @start(max_retries=2, retry_delay=0.05)
                def begin(self):
                    self.state["n"] = self.state.get("n", 0) + 1
                    self.step("work", work, "begin", 0, 0.0)
                    if not os.path.exists({str(tmp_path / "failed")!r}):
                        open({str(tmp_path / "failed")!r}, "w").close()
                        raise OSError("the first time")
                    return self.state["n"]
            """)
    )
    assert handle.wait(60).result == "1"
    assert trace.repeated() == 0
    reconcile(client, handle)


FAILS = """
    class Fails(Flow[dict]):
        @start()
        def a(self):
            trace("method a")
            self.state["n"] = self.state.get("n", 0) + 1

        @router(a)
        def route(self):
            trace("method route")
            self.state["n"] += 1
            return "go"

        @listen("go")
        def target(self):
            trace("method target")
            self.state["n"] += 1
            if not os.path.exists(FLAG):
                raise OSError("not yet")
            return self.state["n"]
    """


def test_resume_after_a_router_goes_to_the_routers_target(
    fleet: Any, client: Client, flow_of: Any, trace: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    flag = tmp_path / "may"
    handle = client.submit(flow_of(FAILS.replace("FLAG", repr(str(flag)))))
    failed = handle.wait(60)
    assert failed.status == "failed"
    assert "task 'target': OSError: not yet" in str(failed.error)
    flag.touch()
    result = client.resume(handle.id).wait(60)
    assert result.result == "3"
    assert Counter(trace.lines()) == {"method a": 1, "method route": 1, "method target": 2}


def test_resume_from_an_older_checkpoint_has_the_state_of_that_position(
    fleet: Any, client: Client, flow_of: Any, trace: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    flag = tmp_path / "may"
    flag.touch()
    handle = client.submit(flow_of(FAILS.replace("FLAG", repr(str(flag)))))
    assert handle.wait(60).result == "3"
    first, *_ = client.checkpoints(handle.id)
    result = client.resume(handle.id, checkpoint=first.id).wait(60)
    assert (result.result, result.branch.startswith("resume/")) == ("3", True)
    assert Counter(trace.lines()) == {"method a": 1, "method route": 2, "method target": 2}


def test_a_fork_with_another_label_goes_the_other_way_and_does_nothing_else_again(
    fleet: Any, client: Client, flow_of: Any, trace: Any
) -> None:
    fleet.start("--concurrency", "2")
    handle = client.submit(
        flow_of("""
            class Routed(Flow[dict]):
                @start()
                def a(self):
                    trace("method a")
                    self.state["log"] = ["a"]

                @start()
                def side(self):
                    trace("method side")
                    self.state["side"] = self.state.get("colour", "none")

                @router(a)
                def route(self):
                    trace("method route")
                    return "left"

                @listen("left")
                def go_left(self):
                    trace("method left")
                    self.state["log"].append("left")

                @listen("right")
                def go_right(self):
                    trace("method right")
                    self.state["log"].append("right")

                @listen(and_(side, or_(go_left, go_right)))
                def end(self):
                    return {"log": self.state["log"], "side": self.state["side"], "colour": self.state.get("colour")}
            """)
    )
    assert result_of(handle.wait(60)) == {"log": ["a", "left"], "side": "none", "colour": None}
    before = Counter(trace.lines())
    fork = client.fork(handle.id, branch="other", edits={"route": "right"}, inputs={"colour": "red"})
    result = fork.wait(60)
    assert result_of(result) == {"log": ["a", "right"], "side": "none", "colour": "red"}
    assert Counter(trace.lines()) - before == {"method right": 1}
    assert set(result.outputs) == {"a", "side", "route", "go_right", "end"}
    assert result_of(handle.result()) == {"log": ["a", "left"], "side": "none", "colour": None}
    back = client.fork(handle.id, source="other", branch="back", edits={"route": "left"}).wait(60)
    assert result_of(back) == {"log": ["a", "left"], "side": "none", "colour": "red"}
    with pytest.raises(BadInput, match="has no task 'sidde' to edit: did you mean 'side'"):
        client.fork(handle.id, edits={"sidde": "x"})
    (said,) = client.fork(handle.id, edits={"route": "up"}).notes
    assert said == "warning: nothing listens to 'up', which 'route' now returns; there are listeners to left, right"
    with pytest.raises(BadInput, match="no method is left to run there"):
        client.fork(handle.id, inputs={"colour": "blue"})


def test_what_ends_after_the_failure_of_another_is_kept_and_gone_on_with(
    fleet: Any, client: Client, flow_of: Any, trace: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    fleet.start("--concurrency", "2")
    may = tmp_path / "may"
    handle = client.submit(
        flow_of(f"""
            class Late(Flow[dict]):
                @start()
                def slow(self):
                    hold("slow")
                    trace("method slow")
                    self.state["slow"] = 1

                @start()
                def breaks(self):
                    until("held slow")
                    trace("method breaks")
                    if not os.path.exists({str(may)!r}):
                        raise OSError("broken")

                @listen(slow)
                def after(self):
                    trace("method after")

                @listen(and_(after, breaks))
                def end(self):
                    return self.state["slow"]
            """)
    )
    assert handle.wait(60).status == "failed"
    trace.let_go()
    eventually(lambda: "slow" in handle.result().outputs, why="what was at work is kept")
    assert "after" not in handle.result().outputs
    may.touch()
    assert client.resume(handle.id).wait(60).result == "1"
    assert Counter(trace.lines()) == {"held slow": 1, "method slow": 1, "method breaks": 2, "method after": 1}


def test_changed_code_takes_over_the_state_and_its_new_listener_runs(
    fleet: Any, client: Client, flow_of: Any, trace: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    flag = tmp_path / "may"
    text = FAILS.replace("FLAG", repr(str(flag)))
    handle = client.submit(flow_of(text))
    assert handle.wait(60).status == "failed"
    flag.touch()
    flow_of(
        text
        + """
        @listen(route)
        def beside(self):
            trace("method beside")
            self.state["beside"] = True

        @listen(and_(target, beside))
        def end(self):
            return {"n": self.state["n"], "beside": self.state["beside"]}
"""
    )
    resumed = fleet.runner("resume", handle.id, "--accept-code-change", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert result_of(handle.result()) == {"n": 3, "beside": True}
    assert Counter(trace.lines()) == {"method a": 1, "method route": 1, "method target": 2, "method beside": 1}


def test_a_handler_of_the_file_hears_of_methods(
    fleet: Any, client: Client, flow_of: Any, trace: Any, eventually: Callable[..., Any]
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(
        flow_of("""
            from runner.events import FlowEvent, event_bus

            @event_bus.on(FlowEvent)
            def hear(source, event):
                trace(f"heard {event.type} {getattr(event, 'method_name', '')}".strip())

            class Told(Flow[dict]):
                @start()
                def a(self):
                    return "x"

                @listen(a)
                def b(self, text):
                    return text
            """)
    )
    assert handle.wait(60).status == "completed"
    eventually(lambda: "heard flow_finished" in trace.lines(), why="handlers hear after the store")
    heard = Counter(line for line in trace.lines() if line.startswith("heard") and "created" not in line)
    assert heard == {
        "heard flow_started": 1,
        "heard method_execution_started a": 1,
        "heard method_execution_finished a": 1,
        "heard method_execution_started b": 1,
        "heard method_execution_finished b": 1,
        "heard flow_finished": 1,
    }


def test_the_time_of_a_commit_does_not_grow_with_the_run(fleet: Any, client: Client, flow_of: Any) -> None:
    """What a method's commit writes is what it changed: the records' sizes are the same in round 2 and in round 60."""
    fleet.start("--concurrency", "2")
    handle = client.submit(flow_of(LOOP.format(rounds=60)))
    began = time.monotonic()
    assert result_of(handle.wait(120)) == counted(60)
    assert time.monotonic() > began
    key = next(iter(client.store.client.scan_iter(f"*:run:{handle.id}:branch:main:outputs")))
    sizes = {name: len(text) for name, text in client.store.client.hgetall(key).items()}
    assert sizes["left#60"] <= sizes["left#2"] + 10


@pytest.mark.parametrize(
    "point", ["step done, not recorded", "step recorded, task not ended", "task done, not committed"]
)
def test_a_crew_inside_a_method_goes_on_where_it_was(
    point: str, fleet: Any, client: Client, flow_of: Any, trace: Any, reconcile: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", RUNNER_CRASH_AT=f"{point}:{flag}")
    handle = client.submit(
        flow_of("""
            def counted(label, n):
                run = steps(label, n, 0.0)
                def task(ctx):
                    trace(f"done {label}")
                    return run(ctx)
                return task

            class Nested(Flow[dict]):
                @start()
                def work(self):
                    tasks = [Task(name=name, run=counted(name, 3)) for name in ("one", "two")]
                    return Crew(tasks=tasks).kickoff().raw
        """)
    )
    assert handle.wait(60).result == "0 1 2"
    assert flag.exists()
    reconcile(client, handle)
    if point == "task done, not committed":
        assert [line for line in trace.lines() if line.startswith("done")] == ["done one", "done two"]
