"""Checkpoints of flows as CrewAI has them: its fields, its way of writing down a state, its own files."""

import json
from typing import Any

from pydantic import BaseModel

from runner import CheckpointConfig, RuntimeState
from runner.flows import INITIAL_STATE_CLASS_MARKER, Flow, listen, router, start


def entity(flow: Flow[Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RuntimeState(root=[flow]).model_dump_json())["entities"][0]
    return found


def test_initial_state_as_data_and_back():
    class MyState(BaseModel):
        id: str = "x"
        foo: str = "bar"

    assert entity(Flow(initial_state=MyState))["initial_state"][INITIAL_STATE_CLASS_MARKER]["title"] == "MyState"
    assert entity(Flow(initial_state=MyState(foo="baz")))["initial_state"] == {"id": "x", "foo": "baz"}
    assert entity(Flow(initial_state={"id": "x"}))["initial_state"] == {"id": "x"}
    raw = RuntimeState(root=[Flow(initial_state=MyState)]).model_dump_json()
    back = RuntimeState.model_validate_json(raw, context={"from_checkpoint": True}).root[0].initial_state
    assert issubclass(back, BaseModel)
    assert set(back.model_fields) == {"id", "foo"}


def test_outputs_without_their_methods_come_back_as_they_are(tmp_path):
    flow = Flow()
    flow._method_outputs = ["first", "second"]
    location = RuntimeState(root=[flow]).checkpoint(str(tmp_path))
    assert Flow.from_checkpoint(CheckpointConfig(restore_from=location)).method_outputs == ["first", "second"]


def test_a_checkpoint_with_crewais_fields_only_goes_on(tmp_path):
    """What CrewAI writes of a flow after a router: its own resume stops there."""
    location = tmp_path / "main" / "20260101T000000_00000000_p-none.json"
    location.parent.mkdir()
    location.write_text(
        json.dumps(
            {
                "crewai_version": "1.0.0",
                "parent_id": None,
                "branch": "main",
                "entities": [
                    {
                        "entity_type": "flow",
                        "name": None,
                        "initial_state": None,
                        "checkpoint_completed_methods": ["a", "route"],
                        "checkpoint_method_outputs": [
                            {"method": "a", "output": "A"},
                            {"method": "route", "output": "left"},
                        ],
                        "checkpoint_method_counts": {"a": 1, "route": 1},
                        "checkpoint_state": {"id": "i", "n": 1},
                    }
                ],
                "event_record": {"nodes": {}},
            }
        )
    )

    class F(Flow[dict]):
        @start()
        def a(self):
            raise AssertionError

        @router(a)
        def route(self):
            raise AssertionError

        @listen("left")
        def target(self):
            return self.state["n"]

    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=str(location))) == 1
