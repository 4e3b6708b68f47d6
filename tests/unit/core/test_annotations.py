"""Annotations, also of names that are imported for type checkers alone: from Python 3.14 on nothing need be quoted."""

import functools
import sys

import pytest

from runner import Crew, Flow, Task, start, tool
from runner.core.annotations import own_annotations
from runner.events import TaskCompletedEvent, event_bus

HEADS = ["from __future__ import annotations", *([""] if sys.version_info >= (3, 14) else [])]
FILE = """
{head}
def fetch(url: Url) -> Page:
    return url

def work(ctx: Context) -> Report:
    return ctx.step("fetch", fetch, "a")

def make() -> Crew:
    return Crew(tasks=[Task(name="one", run=work)])

def told(source: Source, event: Event) -> None:
    heard.append(event)

@start()
def begin(self, crewai_trigger_payload: Payload = None) -> Page:
    return "b"

@tool
def look(at: Place) -> Thing:
    "Looks."
    return at
"""


@pytest.fixture(params=HEADS)
def written(request):
    names = {"__name__": "written", "Crew": Crew, "Task": Task, "start": start, "tool": tool, "heard": []}
    exec(compile(FILE.format(head=request.param), "written.py", "exec", dont_inherit=True), names)
    return names


def test_a_name_that_does_not_resolve_is_no_error(written):
    assert "return" in own_annotations(written["work"])
    assert written["make"]().kickoff().raw == "a"


def test_of_handlers_methods_and_tools_too(written):
    with event_bus.scoped_handlers():
        event_bus.on(TaskCompletedEvent)(written["told"])
        written["make"]().kickoff()
        event_bus.flush()
    assert [one.task_name for one in written["heard"]] == ["one"]
    assert type("Own", (Flow,), {"begin": written["begin"]})().kickoff() == "b"
    assert written["look"].run(at="here") == "here"


def test_of_a_class_they_are_its_own():
    class Base(Flow):
        base: int

    class Own(Base):
        own: str

    assert own_annotations(Own) == {"own": str}
    assert Own(own="x").own == "x"
    assert Own(base=1).base == 1
    with pytest.raises(TypeError, match="has no option 'other'"):
        Own(other=1)


def test_what_has_none_has_none():
    assert own_annotations(functools.partial(print)) == own_annotations(len) == own_annotations(object) == {}
