"""``@persist``: states kept by their id, and begun with. CrewAI's own tests of it pass with other imports."""

import logging

import pytest

from runner.core.errors import BadFlow, BadInput
from runner.flows import Flow, FlowState, SQLiteFlowPersistence, listen, persist, router, start
from runner.flows.adapter import FLOW
from runner.flows.persistence import PersistenceFailed, persistence_of
from runner.providers.config import CheckpointConfig


class Count(FlowState):
    n: int = 0
    said: str = ""


@pytest.fixture
def place(tmp_path):
    return SQLiteFlowPersistence(tmp_path / "states" / "flows.db")


@pytest.fixture
def counting(place):
    class Counting(Flow[Count]):
        @start()
        @persist(place)
        def up(self):
            self.state.n += 1

        @listen(up)
        def last(self):
            self.state.said = "not kept"

    return Counting


def test_an_id_among_the_inputs_begins_with_the_state_that_was_kept(counting, place):
    first = counting()
    assert place.load_state(first.state.id) is None, "nothing is made by looking"
    first.kickoff()
    assert place.load_state(first.state.id) == {"id": first.state.id, "n": 1, "said": ""}
    again = counting()
    again.kickoff(inputs={"id": first.state.id, "said": "hello"})
    assert (again.state.id, again.state.n) == (first.state.id, 2)
    assert place.load_state(first.state.id) == {"id": first.state.id, "n": 2, "said": "hello"}
    unknown = counting()
    unknown.kickoff(inputs={"id": "new"})
    assert (unknown.state.id, unknown.state.n) == ("new", 1)


def test_a_state_is_begun_with_under_another_id(counting, place):
    first = counting()
    first.kickoff()
    fork, pinned, missed = counting(), counting(), counting()
    fork.kickoff(restore_from_state_id=first.state.id)
    pinned.kickoff(inputs={"id": "mine"}, restore_from_state_id=first.state.id)
    missed.kickoff(restore_from_state_id="nowhere")
    assert [one.state.n for one in (first, fork, pinned, missed)] == [1, 2, 2, 1]
    assert pinned.state.id == "mine"
    assert len({one.state.id for one in (first, fork, pinned, missed)}) == 4
    assert place.load_state(first.state.id)["n"] == 1
    for kickoff in (first.kickoff, lambda **how: first.kickoff_async(**how).send(None)):
        with pytest.raises(ValueError, match="from_checkpoint and restore_from_state_id cannot be combined"):
            kickoff(from_checkpoint=CheckpointConfig(), restore_from_state_id="x")


def test_a_class_keeps_the_state_after_each_method(place, caplog):
    @persist(place, verbose=True)
    class Both(Flow[dict]):
        @start()
        def one(self):
            self.state["seen"] = ["one"]

        @listen(one)
        async def two(self):
            self.state["seen"].append("two")

    with caplog.at_level(logging.INFO, "runner.flows"):
        flow = Both()
        flow.kickoff()
    assert place.load_state(flow.flow_id)["seen"] == ["one", "two"]
    assert [r.getMessage() for r in caplog.records] == [
        f"Saving flow state of {flow.flow_id} after {method}" for method in ("one", "two")
    ]


def test_a_state_that_cannot_be_kept_fails_the_flow_and_nothing_is_done_twice(tmp_path):
    (tmp_path / "file").touch()
    calls = []

    class Broken(Flow[dict]):
        @start(max_retries=2)
        @persist(SQLiteFlowPersistence(tmp_path / "file" / "x.db"))
        def one(self):
            calls.append("one")

    with pytest.raises(PersistenceFailed, match="the state of flow Broken cannot be kept after one: "):
        Broken().kickoff()
    assert calls == ["one"]


def test_where_a_state_is_looked_for(counting, place, tmp_path):
    other = SQLiteFlowPersistence(tmp_path / "other.db")
    assert persistence_of(counting()) == place
    assert persistence_of(counting(persistence=other)) == other

    class Two(counting):
        @start()
        @persist(other)
        def more(self): ...

    assert persistence_of(Two()) is None, "two places, and none is named"


def test_on_the_fleet_an_id_is_refused(counting):
    assert FLOW.initial_state(counting, {"n": 3})["n"] == 3
    with pytest.raises(BadInput, match="on the fleet the run keeps the state"):
        FLOW.initial_state(counting, {"id": "x"})


class Letter(Flow[dict]):
    done: list[str] = []

    @start()
    def begin(self):
        self.done.append("begin")

    @router(begin)
    def choose(self):
        self.done.append("choose")
        return "long"

    @listen("long")
    def write(self):
        self.done.append("write")
        return "text"

    @listen(write)
    def send(self, text):
        self.done.append("send")
        return f"{text} of {self.state['id']}"


@pytest.mark.parametrize(
    ("known", "then", "result"),
    [
        ({"begin", "choose", "write"}, ["send"], "None of ann"),
        ({"begin"}, ["choose", "write", "send"], "text of ann"),
        ({"begin", "choose"}, [], None),  # nobody knows which way it went
        (set(), ["begin", "choose", "write", "send"], "text of ann"),
    ],
)
def test_methods_that_are_said_to_be_done_are_not_done(place, monkeypatch, known, then, result):
    """CrewAI's own tests say it by the private name."""
    for name in ("completed_methods", "_completed_methods"):
        monkeypatch.setattr(Letter, "done", [])
        place.save_state("ann", "write", {"id": "ann"})
        flow = Letter(persistence=place)
        setattr(flow, name, set(known))
        assert flow.kickoff(inputs={"id": "ann"}) == result
        assert Letter.done == then
        assert flow.completed_methods == known | set(then)
        flow.kickoff()  # and no more than one kickoff is meant
        assert Letter.done == [*then, "begin", "choose", "write", "send"]


def test_a_flow_is_gone_on_with_where_methods_were_said_to_be_done(tmp_path, monkeypatch):
    monkeypatch.setattr(Letter, "done", [])
    flow = Letter(checkpoint=CheckpointConfig(location=str(tmp_path), on_events=["method_execution_finished"]))
    flow.completed_methods = {"begin", "choose", "write"}
    flow.kickoff(inputs={"id": "ann"})
    again = Letter.from_checkpoint(CheckpointConfig(restore_from=str(tmp_path)))
    again.kickoff()
    assert Letter.done == ["send"]
    flow.completed_methods = {"sent"}
    with pytest.raises(BadFlow, match=r"flow Letter has no method 'sent'; it has: begin, choose"):
        flow.kickoff()
