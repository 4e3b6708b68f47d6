"""The types of events, their pairs, and how a stored one comes back."""

import json
import re
import signal
import threading
import uuid
from importlib import import_module
from typing import Literal, get_args

import pytest
from pydantic import ValidationError

import runner.events
from runner import CheckpointConfig
from runner.core import jobs
from runner.events import (
    SCOPE_ENDING_EVENTS,
    SCOPE_STARTING_EVENTS,
    VALID_EVENT_PAIRS,
    BaseEvent,
    CheckpointEventType,
    CheckpointFailedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
    TaskCompletedEvent,
    TaskFailedEvent,
    TaskStartedEvent,
    ToolUsageErrorEvent,
    load_event,
    signal_event,
)

NAMES = set(get_args(CheckpointEventType))
SIGNALS = {"SIGTERM", "SIGINT", "SIGHUP", "SIGTSTP", "SIGCONT"}


def classes():
    modules = [import_module(f"runner.events.{module}_events") for module in ("work", "flow", "call", "system")]
    return {
        name: cls
        for module in modules
        for name, cls in vars(module).items()
        if re.search(r"^[A-Z].*(?<!Base)Event$", name) and getattr(cls, "__module__", "") == module.__name__
    }


CLASSES = classes()


def test_the_closed_list_has_every_type_once():
    listed = get_args(CheckpointEventType)
    assert len(listed) == len(set(listed)) == 123 + 5 + 1
    assert SIGNALS | {"*"} < NAMES


def test_an_unknown_type_is_refused_with_the_nearest():
    with pytest.raises(ValidationError, match="did you mean 'llm_guardrail_failed'"):
        CheckpointConfig(on_events=["llm_guardrails_failed"])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_type_can_be_asked_for(name):
    assert CheckpointConfig(on_events=[name]).trigger_events == {name}


@pytest.mark.parametrize(("name", "cls"), sorted(CLASSES.items()))
def test_each_class_is_of_its_type_and_says_what_it_is(name, cls):
    assert cls.__doc__
    if name in ("FlowEvent", "ToolUsageEvent"):
        return
    event = cls()
    ours = event.type.startswith(("checkpoint_", "flow_failed", "flow_state_conflict", "call_diverged"))
    assert ours or event.type in NAMES
    if event.type not in SIGNALS:
        assert name.lower() == event.type.replace("_", "") + "event"
    assert type(load_event(event.stored())) is cls
    assert event.stored().keys() <= {"type", "event_id", "timestamp"} | set(cls.model_fields)


def test_pairs_start_and_end():
    assert set(VALID_EVENT_PAIRS) == SCOPE_ENDING_EVENTS
    assert set(VALID_EVENT_PAIRS.values()) == SCOPE_STARTING_EVENTS
    assert not SCOPE_STARTING_EVENTS & SCOPE_ENDING_EVENTS
    assert (SCOPE_STARTING_EVENTS | SCOPE_ENDING_EVENTS) - {"flow_failed"} <= NAMES
    assert (len(SCOPE_STARTING_EVENTS), len(SCOPE_ENDING_EVENTS)) == (24, 48)


def test_what_starts_and_fails_is_paired_or_known_not_to_be():
    """A type that ends in _started opens a scope; those that tell of something long before its end do not."""
    alone = {"a2a_polling_started", "a2a_streaming_started", "agent_logs_started"}
    alone |= {"skill_discovery_started", "step_observation_started"}
    assert {name for name in NAMES if name.endswith("_started")} - alone == SCOPE_STARTING_EVENTS


# -- stored events


SECRET = "sk-live-0123456789"


@pytest.mark.parametrize(
    "event",
    [
        TaskStartedEvent(context=SECRET),
        TaskCompletedEvent(output=SECRET),
        LLMCallStartedEvent(messages=[{"role": "user", "content": SECRET}], callbacks=[threading.Lock()]),
        LLMCallFailedEvent(error=f"Incorrect API key provided: {SECRET}"),
        ToolUsageErrorEvent(tool_name="t", tool_args={"key": SECRET}, error=ValueError(SECRET)),
    ],
)
def test_no_output_prompt_or_secret_is_stored(event):
    assert SECRET not in json.dumps(event.stored())
    assert SECRET not in repr(event.slim().__dict__)
    assert SECRET not in event.model_dump_json()
    assert SECRET not in repr(event.to_json())


def test_an_error_becomes_text():
    assert TaskFailedEvent(error=ValueError("no tea")).stored()["error"] == "ValueError: no tea"
    assert CheckpointFailedEvent(error="disk full").error == "disk full"


def test_the_slim_copy_is_another_event_with_the_same_ids():
    event = TaskCompletedEvent(output="much", task_id="t")
    slim = event.slim()
    assert (event.output, slim.output, slim.event_id, slim.task_id) == ("much", None, event.event_id, "t")
    assert type(slim) is TaskCompletedEvent


class _Thing:
    def __init__(self, **has):
        self.__dict__.update(has)


def test_a_task_at_hand_gives_its_ids():
    task = _Thing(id=7, name=None, description="Write it", agent=_Thing(id="a1", role="writer"))
    event = TaskStartedEvent(task=task)
    assert (event.task_id, event.task_name, event.agent_id, event.agent_role) == ("7", "Write it", "a1", "writer")
    assert TaskStartedEvent(task=task, task_id="mine").task_id == "mine"
    assert ToolUsageErrorEvent(tool_name="t", from_task=task).task_id == "7"
    assert LLMCallStartedEvent(from_agent=task.agent).agent_role == "writer"


def test_an_unknown_type_comes_back_as_the_base_class_with_all_it_has():
    event = load_event({"type": "of_a_later_version", "event_id": "e1", "flavour": {"sweet": [1, 2]}})
    assert type(event) is BaseEvent
    assert (event.event_id, event.flavour) == ("e1", {"sweet": [1, 2]})
    assert load_event(event.stored()).stored() == event.stored()
    assert event.stored()["flavour"] == {"sweet": [1, 2]}


def test_one_that_its_class_does_not_take_comes_back_as_the_base_class():
    event = load_event({"type": "checkpoint_pruned", "removed_count": "many"})
    assert type(event) is BaseEvent
    assert event.removed_count == "many"


def test_an_event_is_loaded_as_it_is():
    event = TaskStartedEvent()
    assert load_event(event) is event


def test_a_class_of_ones_own_comes_back():
    class TeaIsReadyEvent(BaseEvent):
        type: Literal["tea_is_ready"] = "tea_is_ready"
        cups: int = 0

    event = load_event(TeaIsReadyEvent(cups=3).stored())
    assert (type(event), event.cups) == (TeaIsReadyEvent, 3)


def test_a_subclass_that_names_no_type_does_not_take_its_parents():
    class MineEvent(TaskStartedEvent):
        extra: int = 1

    assert type(load_event(MineEvent().stored())) is TaskStartedEvent


def test_an_odd_field_does_not_stop_the_rest_from_being_stored():
    class OddEvent(BaseEvent):
        type: Literal["odd"] = "odd"
        tool: object = None
        loop: list = []

    event = OddEvent(tool=lambda: None, task_id="t")
    assert re.match("<function>", event.stored()["tool"])
    event.loop.append(event.loop)  # and this has no end
    assert event.stored()["task_id"] == "t"
    assert json.dumps(event.stored())


@pytest.mark.parametrize("name", sorted(SIGNALS))
def test_a_signal_has_an_event(name):
    number = getattr(signal, name)
    event = signal_event(number, "asked")
    assert (event.type, event.signal_number, event.reason) == (name, number, "asked")
    assert load_event(event.stored()) == event


def test_another_signal_has_none():
    with pytest.raises(ValueError, match="is not a valid SignalType"):
        signal_event(signal.SIGUSR1)


@pytest.mark.parametrize("run", ["r-1", "r-ü", ""])
def test_every_reader_makes_the_same_id_of_run_and_number(run):
    for number in range(1, 200):
        assert jobs.event_id_of(run, number) == str(uuid.uuid5(jobs._NAMESPACE, f"{run}/{number}"))
    assert jobs.event_id_of(run, 0) is None


def test_a_class_that_nothing_here_emits_is_there_for_handlers():
    event = runner.events.CrewTrainFailedEvent(error=ValueError("no tea"), crew_name="c")
    assert (
        event.stored().items() >= {"type": "crew_train_failed", "error": "ValueError: no tea", "crew_name": "c"}.items()
    )
    assert runner.events.CrewTrainFailedEvent is type(event)


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match=r"module 'runner.events' has no attribute 'TeaEvent'"):
        runner.events.TeaEvent  # noqa: B018 - it raises
