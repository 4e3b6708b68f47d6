"""Checkpoints of flows: whole methods only, restored with the code at hand, going where the routers sent them."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from runner import CheckpointConfig, JsonProvider, SqliteProvider
from runner.core.errors import TaskError
from runner.events import event_bus
from runner.flows import Flow, and_, listen, or_, router, start

from .flow_checkpoints import EACH, Once, Parcel, Stops, Tally, each, written

# -- what is kept, and where it goes on


def test_resume_after_a_router_goes_to_the_routers_target(where):
    """CrewAI returns the label and stops (facts, section 0, point 9)."""
    crash = Once()

    class F(Flow[Tally]):
        @start()
        def a(self):
            self.state.log.append("a")

        @router(a)
        def route(self):
            self.state.log.append("route")
            return "left"

        @listen("left")
        def target(self, label):
            crash()
            self.state.log.append(f"target:{label}")
            return "arrived"

    with pytest.raises(Stops):
        F(checkpoint=each(where)).kickoff()
    restored = F.from_checkpoint(CheckpointConfig(restore_from=where))
    assert restored.method_outputs == [None, "left"]
    assert restored.kickoff() == "arrived"
    assert restored.state.log == ["a", "route", "target:left"]


def test_a_checkpoint_shows_whole_methods_only(where):
    """CrewAI's has b's change with only a done, and counts it twice on resume (facts, section 2.5)."""
    changed, taken = threading.Event(), threading.Event()
    crash = Once()

    class F(Flow[Tally]):
        @start()
        def a(self):
            assert changed.wait(20)
            self.state.count += 1

        @start()
        def b(self):
            self.state.log.append("b")
            changed.set()
            if crash.left:
                assert taken.wait(20)
            crash()

        @listen(and_(a, b))
        def end(self):
            return self.state.count, self.state.log

    event_bus.on("checkpoint_completed")(done := lambda source, event: taken.set())
    try:
        with pytest.raises(Stops):
            F(checkpoint=each(where)).kickoff()
    finally:
        event_bus.off("checkpoint_completed", done)
    (only,) = written(where)
    assert only["checkpoint_completed_methods"] == ["a"]
    assert only["checkpoint_state"]["log"] == []
    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=where)) == (1, ["b"])


def test_as_many_checkpoints_as_methods_each_of_one_moment(where):
    many = 30

    def make(i: int) -> Any:
        def method(self: Any) -> None:
            self.state["done"].append(i)

        method.__name__ = f"m{i:02}"
        return listen("begin")(method)

    body: dict[str, Any] = {f"m{i:02}": make(i) for i in range(many)}

    def begin(self: Any) -> None:
        self.state["done"] = []

    F = type("F", (Flow,), {"begin": start()(begin), **body})
    F(checkpoint=each(where)).kickoff()
    found = written(where)
    assert len(found) == many + 1
    for i, one in enumerate(found):
        assert len(one["checkpoint_completed_methods"]) == i + 1
        assert len(one["checkpoint_state"]["done"]) == i


@pytest.mark.parametrize("provider", [JsonProvider, SqliteProvider])
def test_a_join_waits_for_what_is_missing_only(tmp_path, provider):
    ran: list[str] = []
    crash = Once()

    class F(Flow):
        @start()
        def one(self):
            ran.append("one")
            return 1

        @listen(one)
        def other(self):
            crash()
            ran.append("other")
            return 2

        @listen(and_(one, other))
        def joined(self):
            return "joined"

    config = CheckpointConfig(location=str(tmp_path / "x.db"), provider=provider(), on_events=EACH)
    with pytest.raises(Stops):
        F(checkpoint=config).kickoff()
    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=config.location)) == "joined"
    assert ran == ["one", "other"]


def test_a_loop_goes_on_in_its_round(where):
    crash = Once()

    class F(Flow[Tally]):
        @start("again")
        def work(self):
            self.state.count += 1
            if self.state.count == 3:
                crash()

        @listen(or_(work, "never"))
        def beside(self):
            self.state.log.append(f"beside {self.state.count}")

        @router(beside)
        def enough(self):
            return "again" if self.state.count < 5 else "done"

    with pytest.raises(Stops):
        F(checkpoint=each(where)).kickoff()
    flow = F()
    flow.kickoff(from_checkpoint=CheckpointConfig(restore_from=where))
    assert flow.state.count == 5
    assert flow.state.log == [f"beside {i}" for i in range(1, 6)]
    assert sum(one == "again" for one in flow.method_outputs) == 4


def test_outputs_come_back_as_their_annotations_say(where):
    crash = Once()

    class F(Flow):
        @start()
        def pack(self) -> Parcel:
            return Parcel(weight=3)

        @listen(pack)
        def send(self, parcel):
            crash()
            return type(parcel), parcel.weight

    with pytest.raises(Stops):
        F(checkpoint=each(where)).kickoff()
    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=where)) == (Parcel, 3)


def test_what_no_checkpoint_can_hold_is_said_when_it_is_missed(where, caplog):
    crash = Once()

    class F(Flow[dict]):
        @start()
        def opens(self):
            self.state["lock"] = threading.Lock()
            return threading.Lock()

        @listen(opens)
        def needs(self, lock):
            crash()

    with pytest.raises(Stops):
        F(checkpoint=each(where)).kickoff()
    assert "'lock' of the state of flow F is a lock" in caplog.text
    with pytest.raises(TaskError, match=r"'needs' needs the output of 'opens', a lock, which no checkpoint can hold"):
        F().kickoff(from_checkpoint=CheckpointConfig(restore_from=where))


def test_steps_of_a_method_in_flight_are_not_done_again(where):
    paid: list[str] = []
    crash = Once()

    class F(Flow):
        @start()
        def begin(self):
            answer = self.step("call", lambda: paid.append("call") or "answer")
            self.step("other", lambda: crash() or None) if crash.left else None
            return answer

    def now(source: Any, event: Any, state: Any) -> None:
        if event.type == "method_execution_failed":
            state.checkpoint(where)

    event_bus.arm_recording()
    event_bus.tap(now)
    try:
        with pytest.raises(Stops):
            F().kickoff()
    finally:
        event_bus.untap(now)
    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=where)) == "answer"
    assert paid == ["call"]


# -- events


def test_every_start_has_one_end_over_a_crash(where):
    crash = Once()

    class F(Flow):
        @start()
        def a(self): ...

        @listen(a)
        def b(self):
            if crash.left:
                crash.left = False
                state = event_bus.runtime_state
                state.checkpoint(where)
                raise KeyboardInterrupt

    event_bus.arm_recording()
    with pytest.raises(KeyboardInterrupt):
        F().kickoff()
    told: list[tuple[str, str]] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: told.append((event.type, getattr(event, "method_name", ""))))
        flow = F.from_checkpoint(CheckpointConfig(restore_from=where))
        record = event_bus.runtime_state.event_record
        flow.kickoff()
    kinds: dict[tuple[str, str], int] = {}
    for node in record.all_nodes():
        if node.event.type.startswith(("flow_s", "flow_f", "method")):
            key = (node.event.type, getattr(node.event, "method_name", ""))
            kinds[key] = kinds.get(key, 0) + 1
            if node.event.type.endswith("_started"):
                assert len(node.neighbors("completed_by")) == 1, key
    assert set(kinds.values()) == {1}
    assert [one for one in told if one[0].startswith("method")] == [
        ("method_execution_started", "a"),
        ("method_execution_finished", "a"),
        ("method_execution_started", "b"),
        ("method_execution_finished", "b"),
    ]


# -- a process that is killed


CRASHING = """
    import os, signal, sys
    from runner import CheckpointConfig
    from runner.flows import Flow, listen, router, start

    class F(Flow[dict]):
        @start()
        def a(self):
            print("a", flush=True)
            self.state["n"] = self.state.get("n", 0) + 1

        @router(a)
        def r(self):
            print("r", flush=True)
            return "go"

        @listen("go")
        def b(self):
            self.state["n"] += 10
            if not os.path.exists(sys.argv[2]):
                open(sys.argv[2], "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            print("b", self.state["n"], flush=True)

    where = sys.argv[1]
    config = CheckpointConfig(location=where, on_events=["method_execution_finished"], restore_from=where)
    F(checkpoint=config).kickoff()
"""


def test_killed_in_a_method_and_started_again(tmp_path, where):
    file = tmp_path / "flow.py"
    file.write_text(textwrap.dedent(CRASHING))
    command = [sys.executable, str(file), where, str(tmp_path / "crashed")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "a\nr\n"), first.stderr
    second = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert second.stdout == "b 11\n"
