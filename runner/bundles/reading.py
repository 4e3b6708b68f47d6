"""Reads a crew file: imports and calls it to see what it would kick off, with which inputs, and stops it there."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any


class Reading:
    """A crew file is read, or called to be read: nothing in it is to run for real.

    ``came_to`` are the crews, flows and models that it would have had work.
    """

    def __init__(self) -> None:
        self.came_to: list[object | None] = []
        self.task = task_here()


task_here: Callable[[], object | None] = lambda: None  # noqa: E731 - a place, not a function
"""What tells the task around this, or around who began this thread. The engine puts it here, which has tasks."""

_read: ContextVar[Reading | None] = ContextVar("runner_reading", default=None)
_readings: list[Reading] = []


@contextlib.contextmanager
def reading() -> Iterator[Reading]:
    """While this is open, code of a crew is read."""
    one = Reading()
    token = _read.set(one)
    _readings.append(one)
    try:
        yield one
    finally:
        _readings.remove(one)
        _read.reset(token)


def being_read() -> Reading | None:
    """What is being read, if code that comes here does so because of that: in a thread that it began, too.

    Threads of a task are none of those while another crew is read in its process.
    """
    found = _read.get()
    if found is None and _readings and threading.current_thread() is not threading.main_thread():
        task = task_here()
        return next((one for one in reversed(_readings) if one.task is task), None)
    return found


class KickedOff(BaseException):
    """A crew file that is being read has come to the kickoff of ``crew``; None for an agent or a model alone."""

    def __init__(self, crew: object | None) -> None:
        super().__init__("kicked off while it is read")
        self.crew = crew
        if (read := being_read()) is not None:
            read.came_to.append(crew)


_inputs: dict[int, dict[str, Any]] = {}
"""What crews are kicked off with where they are made, by the id of each that is there."""


def stop_if_read(thing: object | None, inputs: Mapping[str, Any] | None = None) -> None:
    """Raise `KickedOff` if this is code that is read. ``thing`` is the crew or flow, None for an agent or a model."""
    if being_read() is not None:
        raise KickedOff(None if thing is None else with_inputs(thing, inputs))


def with_inputs(thing: Any, inputs: Mapping[str, Any] | None) -> Any:
    """The crew or flow, of which it is noted that its file kicks it off with these inputs."""
    if inputs:
        if id(thing) not in _inputs:
            weakref.finalize(thing, _inputs.pop, id(thing), None).atexit = False
        _inputs[id(thing)] = dict(inputs)
    return thing


def inputs_of(thing: object) -> dict[str, Any]:
    """What a crew or a flow is kicked off with by default, as its file has it."""
    return dict(_inputs.get(id(thing), {}))
