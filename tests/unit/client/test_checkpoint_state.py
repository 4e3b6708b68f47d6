"""What is read out of a stored state, of ours and of others."""

from typing import Any

import pytest

from runner.client.checkpoints.model import Checkpoint, EntityView
from runner.client.checkpoints.state import details, parse
from runner.providers.base import CheckpointTorn

ONE = Checkpoint("20260715T101530_0123abcd", "main")


def read(*entities: dict[str, Any], **more: Any):
    return details({"entities": list(entities), **more}, ONE)


def crew(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"entity_type": "crew", "name": name, "tasks": list(tasks), **more}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is torn or not JSON"),
        ('{"entities": [', "is torn or not JSON"),
        ("[]", "is not a state: it has no entities"),
        ('{"a": 1}', "is not a state: it has no entities"),
        ('{"entities": 3}', "is not a state: it has no entities"),
    ],
)
def test_what_is_no_state_is_said(text, why):
    with pytest.raises(CheckpointTorn, match=f"checkpoint c1 {why}"):
        parse(text, "c1")


def test_the_status_of_a_task():
    found = read(
        crew(
            "c",
            {"key": "a", "output": {"raw": "text", "agent": "me"}},
            {"key": "b", "output": {"json": {"n": 1}}},
            {"key": "c", "output": {"raw": "", "skipped": True}},
            {"key": "d", "output": None, "steps": {"s": "1"}},
            {"key": "e", "output": None, "messages": [], "steps": {}},
        )
    )
    assert [(task.status, task.output, task.editable, task.is_json) for task in found.tasks] == [
        ("done", "text", True, False), ("done", '{"n": 1}', True, True), ("skipped", "", False, False),
        ("running", None, True, False), ("pending", None, True, False),
    ]  # fmt: skip
    assert found.progress == (3, 5)
    assert found.entities == (EntityView("crew", "c", 3, 5),)


def test_several_entities_keep_their_tasks_apart():
    agent = {"entity_type": "agent", "role": "a\nsage", "asked": [], "output": {"raw": "42"}}
    found = read(crew("one", {"key": "a"}, checkpoint_inputs={"x": 1}), crew("two", {"name": "a"}, {}), agent)
    assert [task.key for task in found.tasks] == ["one/a", "two/a", "two/task_2", "a sage/kickoff"]
    assert not any(task.editable for task in found.tasks)
    assert [entity.name for entity in found.entities] == ["one", "two", "a sage"]
    assert found.inputs == {"x": 1}


def test_a_flow_with_methods_done_twice_lost_and_waiting():
    flow = {
        "entity_type": "flow", "name": None, "flow_name": "Tale",
        "methods": ["begin", "draw", "check", "ask", "end"],
        "checkpoint_completed_methods": ["begin", "check", "draw"],
        "checkpoint_method_outputs": [
            {"method": "begin", "key": "begin", "output": "once"},
            {"method": "draw", "key": "draw", "output": None, "lost": "Image"},
            {"method": "check", "key": "check", "output": False},
            {"method": "begin", "key": "begin#2", "output": {"again": 2}},
        ],
        "checkpoint_state": {"id": "f1", "words": 2},
        "inputs": {"time": "night"},
        "asked": {"ask": {"method_name": "ask", "message": "Is it good?"}},
    }  # fmt: skip
    found = read(flow, trigger="method_execution_finished", crewai_version="1.0.0")
    assert [(task.key, task.status, task.output, task.description) for task in found.tasks] == [
        ("begin", "done", '{"again": 2}', ""),
        ("draw", "done", "(Image: not JSON, so not in the checkpoint)", ""),
        ("check", "done", "false", ""),
        ("ask", "waiting", None, "Is it good?"),
        ("end", "pending", None, ""),
    ]
    assert found.entities == (EntityView("flow", "Tale", 3, 5),)
    assert found.state == {"id": "f1", "words": 2}
    assert found.inputs == {"time": "night"}
    assert found.checkpoint.trigger == "method_execution_finished"


def test_a_flow_as_crewai_writes_it():
    flow = {
        "entity_type": "flow", "name": "F", "checkpoint_completed_methods": ["b", "a"],
        "checkpoint_method_outputs": ["first", "second"], "checkpoint_state": {"n": 1},
    }  # fmt: skip
    found = read(flow)
    assert [(task.key, task.status, task.output) for task in found.tasks] == [("b", "done", None), ("a", "done", None)]
    assert found.entities[0].total is None


@pytest.mark.parametrize(
    "entity",
    [
        {},
        {"entity_type": None, "tasks": "none"},
        {"tasks": [3, None, {"output": 7, "agent": 3, "steps": 1}], "agents": {"a": 1}, "checkpoint_inputs": []},
        {"entity_type": "flow", "checkpoint_completed_methods": 3, "checkpoint_method_outputs": {}, "asked": []},
        {"entity_type": "flow", "methods": 3, "checkpoint_method_outputs": [1, {"method": "a", "output": {"raw": 1}}]},
        {"entity_type": "agent", "asked": None, "output": "text"},
        {"entity_type": ["x"], "name": {"a": 1}},
        {"tasks": [{"output": {}}, {"output": {"json": 3}}, {"output": {"raw": None, "json_dict": [1]}}]},
    ],
)
def test_what_makes_no_sense_shows_less_and_stops_nobody(entity):
    found = read(entity, 3, None, event_record=[], trigger=3, crewai_version=None)
    assert len(found.entities) == 1
    assert all(isinstance(task.output, str | None) for task in found.tasks)
