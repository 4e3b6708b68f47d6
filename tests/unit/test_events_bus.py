"""Who is told of an event, where, and in which order."""

from typing import get_args

import pytest

from runner.events import CheckpointEventType, EventBus, TaskCompletedEvent, TaskStartedEvent


@pytest.fixture
def bus():
    bus = EventBus()
    yield bus
    bus.shutdown()


def test_the_closed_list_has_every_type_once():
    names = get_args(CheckpointEventType)
    assert len(names) == len(set(names)) == 118 + 5 + 1


def test_a_handler_hears_in_order_of_what_it_asked_for(bus):
    heard = []
    bus.on(TaskStartedEvent, "task_completed")(lambda source, event: heard.append((source, event.type)))
    for _ in range(50):
        bus.emit("me", TaskStartedEvent(task_id="t"))
        bus.emit("me", TaskCompletedEvent(task_id="t"))
    assert bus.flush()
    assert heard == [("me", "task_started"), ("me", "task_completed")] * 50
