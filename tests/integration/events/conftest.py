"""A bus, and contexts with nothing open."""

import pytest

from runner.events import EventBus, kickoff, restore_event_scope


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is open, and no kickoff is there, before and after each test."""
    restore_event_scope(())
    kickoff.enter(None)
    yield
    restore_event_scope(())
    kickoff.enter(None)


@pytest.fixture
def bus():
    bus = EventBus()
    yield bus
    bus.shutdown()
