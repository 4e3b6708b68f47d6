"""What the product gives to whoever imports it changes on purpose only."""

import inspect
import re

import pytest

import runner
from runner.core import errors

EXPORTED = {
    *("BaseProvider", "JsonProvider", "RedisProvider", "SqliteProvider"),
    *("BaseEvent", "CheckpointEventType", "EventBus", "EventRecord", "event_bus", "resume_task_scope"),
    *("Agent", "CheckpointConfig", "Client", "Crew", "CrewOutput"),
    *("Process", "RunHandle", "Task", "TaskContext", "TaskOutput"),
    *("BaseLLM", "BaseTool", "ConditionalTask", "LLM", "LiteAgentOutput", "RuntimeState"),
    *("durable", "idempotency_key", "tool"),
    *("Flow", "and_", "human_feedback", "listen", "or_", "router", "start"),
}


def test_the_export_list():
    assert sorted(EXPORTED) == sorted(runner.__all__)


@pytest.mark.parametrize("name", sorted(EXPORTED - {"CheckpointEventType"}))  # a Literal says what it is
def test_each_name_can_be_imported_and_says_what_it_is(name):
    assert inspect.getdoc(getattr(runner, name))


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match="module 'runner' has no attribute 'Crw'"):
        runner.Crw  # noqa: B018 - it raises


def test_the_error_tree_is_drawn_as_it_is():
    """Each class of the module is drawn below its base, with its exit code where it says one."""
    classes = {n: c for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, BaseException)}
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}(?P<lead>[ │├└─]*)(?P<name>[A-Z]\w+)(?P<rest>.*)$", line)
        if not found:
            continue
        depth = len(found["lead"])
        while above and above[-1][0] >= depth:
            above.pop()
        drawn[found["name"]] = above[-1][1] if above else ""
        above.append((depth, found["name"]))
        code = re.search(r"exit (\d)", found["rest"])
        if code:
            assert classes[found["name"]].exit_code == int(code[1])
    expected = {
        name: base if (base := cls.__mro__[1].__name__) in classes else ""
        for name, cls in classes.items()
        if issubclass(cls, errors.RunnerError)
    }
    assert drawn == expected
    for name, cls in classes.items():
        assert cls.__doc__, name
        if not issubclass(cls, errors.RunnerError):
            assert re.search(rf"\b{name}\b", errors.__doc__ or ""), f"{name} is not in the tree's text"
            assert not issubclass(cls, Exception), "a stop must pass through `except Exception`"
