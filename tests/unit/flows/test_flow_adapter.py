"""Flows as crews: found in a file, planned, performed as jobs, and recorded so that they come back the same."""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from runner import CheckpointConfig, Crew, Task
from runner.bundles.loader import find_crew
from runner.client.submission import prepare, run_fields
from runner.core.errors import BadCrew, BadInput, FlowLoop, TaskError
from runner.core.output import TaskOutput
from runner.core.plan import Plan
from runner.core.plan.expansion import Committed, Shared
from runner.crews.crew import CrewOutput
from runner.engine import adapters
from runner.engine.work import Work
from runner.events import FlowCreatedEvent, event_bus
from runner.events.work_events import CrewKickoffStartedEvent, TaskCompletedEvent
from runner.flows import Flow, and_, listen, or_, router, start
from runner.flows.adapter import FLOW
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne


class Tally(BaseModel):
    count: int = 0
    log: list[str] = []


class Parcel(BaseModel):
    weight: int


class Counts(Flow[Tally]):
    @start()
    def a(self) -> Parcel:
        self.state.count += 1
        return Parcel(weight=2)

    @start()
    def b(self):
        self.state.log.append("b")

    @router(and_(a, b))
    def route(self):
        return "go" if self.state.count < 3 else None

    @listen(a)
    def takes(self, parcel):
        self.state.log.append(f"takes {parcel.weight} {type(parcel).__name__}")

    @listen(or_("go", "again"))
    def counts(self, label):
        self.state.count += 1
        self.state.log.append(f"counts {label}")


# -- finding


def module(**names: Any) -> ModuleType:
    found = ModuleType("flow")
    found.__file__ = "flow.py"
    found.__dict__.update(names)
    return found


def found(**names: Any) -> str:
    return find_crew(module(**names), None, adapters.is_crew, adapters.chosen)[0]


def test_a_class_an_instance_or_a_named_one():
    class Sub(Counts):
        pass

    crew = Crew(tasks=[Task(name="t", run=lambda ctx: "x")])
    assert found(Counts=Counts, Flow=Flow) == "Counts"
    assert found(Counts=Counts, flow=Counts()) == "flow"
    assert found(Counts=Counts, Sub=Sub) == "Sub"
    assert found(crew=crew, Counts=Counts) == "Counts"
    assert found(crew=crew) == "crew"
    with pytest.raises(BadCrew, match="2 crews: one, two"):
        found(one=Counts(), two=Counts())


def test_what_is_no_flow_to_run():
    class NeedsAWord(Counts):
        def __init__(self, word: str) -> None: ...

    class NoStart(Flow):
        @listen("x")
        def a(self): ...

        @router(a)
        def b(self): ...

    assert not adapters.is_crew(Flow)
    assert not adapters.is_crew(Flow())
    with pytest.raises(BadCrew, match=r"cannot be created without arguments .* add `flow = NeedsAWord"):
        FLOW.plan(NeedsAWord, "x")
    with pytest.raises(BadCrew, match="no method with @start"):
        FLOW.plan(NoStart, "x")


# -- planning


def test_a_plan_that_grows_holds_what_decides_it():
    plan = FLOW.plan(Counts, "file")
    assert [task.key for task in plan.tasks] == ["a", "b"]
    assert (plan.crew, plan.result, plan.total) == ("Counts", "", None)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.by_key["takes#2"].key == "takes#2"
    assert [task.key for task in plan.shown(["a", "takes", "a"])] == ["a", "takes"]


def test_triggers_in_the_fleets_words():
    class F(Counts):
        checkpoint = CheckpointConfig(on_events=["method_execution_finished", "flow_paused"], max_checkpoints=3)

    config = FLOW.checkpoints(F)
    assert config is not None
    assert (config.on_events, config.max_checkpoints) == (["task_completed", "flow_paused"], 3)
    assert FLOW.checkpoints(Counts(checkpoint=False)) is None


def test_the_beginning_of_a_run():
    beginning = FLOW.initial_state(Counts, {"count": 2})
    assert beginning["count"] == 2
    assert len(beginning["id"]) == 36
    with pytest.raises(BadInput, match=r"Tally\.count"):
        FLOW.initial_state(Counts, {"count": "many"})
    with pytest.raises(BadInput, match="'lock' of the state is an object, which is not JSON"):
        FLOW.initial_state(Counts(initial_state={"lock": object()}), {})


# -- performing


class FakeBranch:
    """A branch in memory: commits what it is given if the version is right, as the store does."""

    def __init__(self, flow: Any, inputs: Mapping[str, Any] | None = None) -> None:
        self.flow = flow
        self.start = FLOW.initial_state(flow, inputs or {})
        self.stored: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, str] = {}
        self.version = 0
        self.ready = [task.key for task in FLOW.plan(flow, "x").tasks]
        self.notes: list[tuple[str, str]] = []

    def initial_state(self) -> Mapping[str, Any]:
        return self.start

    def shared(self) -> Shared:
        return Shared(str(self.version) if self.version else "", dict(self.fields))

    def records(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return {key: self.stored[key] for key in keys}

    def history(self) -> Sequence[Committed]:
        return [Committed(key, record) for key, record in self.stored.items()]

    def do(self, key: str) -> Any:
        journal = Journal({}, FakeRecorder(), CancelScope())
        work = Work("r", "main", 1, key, FLOW.plan(self.flow, "x"), {}, journal, None, None, line=self)
        return FLOW.expand(self.flow, work)

    def commit(self, key: str, expand: Any) -> None:
        expansion = expand(self.shared())
        self.version += 1
        self.stored[key] = json.loads(expansion.output)
        self.fields = {name: text for name, text in self.fields.items() if name not in expansion.gone} | dict(
            expansion.put
        )
        self.notes += expansion.notes
        self.ready.remove(key)
        self.ready += [task.key for task in expansion.ready]

    def state(self) -> dict[str, Any]:
        return {name[6:]: json.loads(text) for name, text in self.fields.items() if name.startswith("state:")}

    def run(self) -> None:
        while self.ready:
            self.commit(self.ready[0], self.do(self.ready[0]))


class FakeRecorder(OneByOne):
    def begin_step(self, *entry: Any, **about: Any) -> None: ...

    def mark_sent(self, entry: Any) -> None: ...

    def drop_step(self, *entry: Any, **about: Any) -> None: ...

    def record_step(self, step: str, value: str, **about: Any) -> None: ...


def test_a_flow_that_its_author_copies_by_creating_one_is_told_of_once():
    class Copied(Flow):
        def __copy__(self):
            return Copied()

        @start()
        def a(self):
            return "a"

    told: list[str] = []
    with event_bus.scoped_handlers():
        event_bus.on(FlowCreatedEvent)(lambda source, event: told.append(event.flow_name))
        FakeBranch(Copied()).run()
        event_bus.flush()
    assert told == ["Copied"]


def test_methods_one_after_the_other():
    branch = FakeBranch(Counts)
    branch.run()
    assert list(branch.stored) == ["a", "b", "takes", "route", "counts"]
    state = branch.state()
    assert (state["count"], state["log"]) == (2, ["b", "takes 2 Parcel", "counts go"])
    assert branch.notes == []


def test_methods_side_by_side_are_merged_whoever_is_first():
    for first, second in (("a", "b"), ("b", "a")):
        branch = FakeBranch(Counts)
        done = {key: branch.do(key) for key in ("a", "b")}
        branch.commit(first, done[first])
        branch.commit(second, done[second])
        assert branch.state()["count"] == 1
        assert branch.state()["log"] == ["b"]
        assert sorted(branch.ready) == ["route", "takes"]


def test_a_commit_that_came_too_late_looks_again_and_does_nothing_twice():
    branch = FakeBranch(Counts)
    late = branch.do("a")
    late(branch.shared())  # decided, and not stored: somebody was first
    branch.commit("b", branch.do("b"))
    branch.commit("a", late)
    assert branch.state()["count"] == 1


def test_a_conflict_is_noted_with_its_paths():
    class Both(Flow[dict]):
        @start()
        def one(self):
            self.state["who"] = {"name": "one", "one": 1}

        @start()
        def other(self):
            self.state["who"] = {"name": "other"}

        @start()
        def beside(self):
            self.state["whole"] = True

    branch = FakeBranch(Both)
    done = {key: branch.do(key) for key in ("one", "beside", "other")}
    for key, expand in done.items():
        branch.commit(key, expand)
    text = "who.name: changed by one while other was at work; the values of other are kept, since it finished last"
    assert branch.notes == [("flow_state_conflict", text)]
    assert branch.state()["who"] == {"name": "other", "one": 1}


def test_fields_that_new_code_adds_are_no_conflict():
    branch = FakeBranch(Counts)
    del branch.start["log"]
    branch.commit("b", branch.do("b"))
    assert (branch.state()["log"], branch.notes) == (["b"], [])


def test_a_method_has_a_self_of_its_own():
    class Own(Flow):
        seen: int = 0

        @start()
        def a(self):
            self.seen += 1
            return self.seen

        @listen(a)
        def b(self):
            self.seen += 1
            return self.seen

    for flow in (Own, Own(seen=5)):
        branch = FakeBranch(flow)
        branch.run()
        first = 5 if isinstance(flow, Own) else 0
        assert [one["flow"]["value"] for one in branch.stored.values()] == [first + 1, first + 1]


@pytest.mark.parametrize(
    "value",
    ["text", "", None, True, 3, 2.5, {"a": [1]}, [1, 2], CrewOutput(raw="r", tasks_output=[TaskOutput(raw="t")])],
)
def test_what_a_method_returned_comes_to_its_listener_the_same(value):
    came = []

    class Passes(Flow):
        @start()
        def gives(self):
            return value

        @listen(gives)
        def takes(self, given):
            came.append(given)

    FakeBranch(Passes).run()
    assert came == [value]
    assert type(came[0]) is type(value)


def test_what_is_not_json_fails_in_words():
    class Odd(Flow):
        @start()
        def gives(self):
            return object()

    with pytest.raises(TaskError, match=r"method 'gives' returned something that is not JSON \(an object"):
        FakeBranch(Odd).run()


def test_a_loop_without_end_fails_when_it_is_stored():
    class Ever(Flow):
        max_method_calls = 3

        @start("again")
        def a(self): ...

        @router(a)
        def b(self):
            return "again"

    with pytest.raises(FlowLoop, match="more than 3 times"):
        FakeBranch(Ever).run()


def test_a_method_that_the_code_no_longer_comes_to_says_so():
    branch = FakeBranch(Counts)
    with pytest.raises(TaskError, match="it no longer reaches 'gone'"):
        branch.do("gone")


def test_events_in_the_words_of_flows():
    output = TaskOutput(name="a", raw="text")
    told = FLOW.format_event(Counts, "a#2", TaskCompletedEvent(output=output, event_id="e", started_event_id="s"))
    assert (told.type, told.method_name, told.flow_name, told.result) == (
        "method_execution_finished", "a", "Counts", "text",
    )  # fmt: skip
    assert (told.event_id, told.started_event_id) == ("e", "s")
    assert FLOW.format_event(Counts, "a", CrewKickoffStartedEvent()).type == "flow_started"


@pytest.mark.slow
def test_what_is_asked_for_at_submit_is_in_the_fleets_words_too(tmp_path):
    file = tmp_path / "flow.py"
    file.write_text(
        "from runner.flows import Flow, start\n\n\nclass One(Flow):\n    @start()\n    def a(self): ...\n", "utf-8"
    )
    asked = ["method_execution_finished", "flow_finished", "SIGTERM"]
    fields = run_fields(prepare(str(file)), {}, "runner", max_checkpoints=3, checkpoint_on=asked, keep=60.0)
    assert fields["checkpoint_on"] == ",task_completed,crew_kickoff_completed,SIGTERM,"
