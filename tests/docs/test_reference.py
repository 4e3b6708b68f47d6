"""Public names of checkpoints and events are in docs/reference.md, made of docstrings, or in docs/checkpointing.md."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import runner.events
import runner.testing
from runner import CheckpointConfig, RuntimeState
from runner.cli import cli
from runner.core import errors
from runner.events import BaseEvent, CheckpointEventType, EventBus, EventRecord
from runner.events.base import classes
from runner.providers import BaseProvider, CheckpointInfo
from runner.providers.base import CheckpointNotFound, CheckpointTorn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checkpointing.md"
REFERENCE = PAGE.read_text("utf-8").partition("\n## Reference\n")[2]


def found(path: str) -> Any:
    """What a directive of docs/reference.md names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def generated() -> Iterator[str]:
    """The names in docs/reference.md: what its directives list, and the documented members of listed classes."""
    page = (PAGE.parent / "reference.md").read_text("utf-8")
    listed = {path.rpartition(".")[2]: found(path) for path in re.findall(r"auto(?:class|function|data):: (\S+)", page)}
    for name in re.findall(r"automodule:: (\S+)", page):
        listed |= {one: getattr(import_module(name), one) for one in import_module(name).__all__}
    for name, thing in listed.items():
        if not inspect.isroutine(thing) or inspect.getdoc(thing):
            yield name
        if inspect.isclass(thing):
            yield from getattr(thing, "model_fields", getattr(thing, "__dataclass_fields__", ()))
            yield from (one for one in public(thing) if inspect.getdoc(inspect.getattr_static(thing, one)))


def section(title: str) -> str:
    """The text under a heading of the reference."""
    return REFERENCE.partition(f"### {title}\n")[2].partition("\n### ")[0]


def public(kind: type[Any]) -> set[str]:
    """The names of a class that are its own and not pydantic's."""
    return {name for base in kind.__mro__ if base.__module__.startswith("runner") for name in vars(base)
            if not name.startswith("_") and not name.startswith("model_")}  # fmt: skip


#: What stands in backquotes, as words: `a.b(c=1)` is a, b and c.
SAID = {word for span in re.findall(r"`([^`]+)`", REFERENCE) for word in re.findall(r"[A-Za-z_]\w*", span)}
SAID |= {*generated()}


@pytest.mark.parametrize("module", ["runner.snapshots", "runner.providers"])
def test_every_name_of_a_package_is_there(module):
    assert sorted(set(import_module(module).__all__) - SAID) == []


def test_every_name_for_tests_is_on_its_page():
    said = set(re.findall(r"\w+", (PAGE.parent / "testing.md").read_text("utf-8")))
    assert sorted(set(runner.testing.__all__) - said) == []
    for kind in (runner.testing.ModelServer, runner.testing.ModelRequest, runner.testing.Answer):
        assert sorted(public(kind) - {"ended", "took", "decide", "done", "to_dict"} - said) == []


@pytest.mark.parametrize("module", runner.events._MODULES)
def test_every_name_of_the_events_is_there(module):
    names = set(import_module(f"runner.events.{module}").__all__)
    assert sorted(names - SAID) == []


@pytest.mark.parametrize("kind", [CheckpointConfig, RuntimeState, BaseProvider, CheckpointInfo, EventBus, EventRecord])
def test_every_field_and_method_is_there(kind):
    fields = set(getattr(kind, "model_fields", {}))
    assert sorted((public(kind) | fields) - SAID - {"nodes"}) == []


def test_every_field_of_an_event_is_there():
    assert sorted(set(BaseEvent.model_fields) - SAID) == []


def test_the_defaults_are_those_of_the_code():
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| `([^`]+)` \|", section("CheckpointConfig")))
    assert list(rows) == list(CheckpointConfig.model_fields)
    for name, said in rows.items():
        default = CheckpointConfig.model_fields[name].get_default(call_default_factory=True)
        if name == "provider":
            assert said == f"{type(default).__name__}()"
        else:
            assert ast.literal_eval(said) == default


def test_every_event_type_is_there_once():
    table, _, besides = section("Event types").partition("trigger no checkpoint: ")
    rows = "".join(line for line in table.splitlines() if line.startswith("|"))
    listed = re.findall(r"`([\w*]+)`", rows)
    assert sorted(listed) == sorted(get_args(CheckpointEventType))
    runner.events.load_event({"type": "none"})  # files the classes
    others = {kind for kind, cls in classes.items() if cls.__module__.startswith("runner.")}
    told = set(re.findall(r"`(\w+)`", besides))
    assert others - set(listed) - {"tool_usage"} <= told


def test_every_error_of_checkpoints_is_there():
    for error in (CheckpointNotFound, CheckpointTorn, errors.BadCheckpoint):
        row = next(line for line in section("Errors").splitlines() if line.startswith(f"| `{error.__name__}`"))
        assert issubclass(error, ValueError)
        assert "`ValueError`" in row


def test_every_verb_and_option_is_there():
    context = click.Context(cli)
    group = cli.get_command(context, "checkpoint")
    assert isinstance(group, click.Group)
    wanted = {f"checkpoint {name}": command for name, command in group.commands.items() if name != "browse"}
    wanted |= {name: cli.get_command(context, name) for name in ("resume", "fork", "diff", "answer")}
    told = section("Command line")
    for name, command in wanted.items():
        [row] = [line for line in told.splitlines() if line.startswith(f"| `runner {name} ")]
        options = {option for one in command.params for option in one.opts if option.startswith("--")}
        missing = {option for option in options - {"--json", "--redis-url"} if option not in row}
        assert missing == set(), row


def test_exit_codes_are_those_of_the_code():
    said = section("Command line")
    for code in errors.Exit:
        assert f" {code.value} " in said
