"""Options that several commands share, and the parsing of inputs."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from runner.core.errors import BadInput, UsageError
from runner.core.inputs import MOST_BYTES, MOST_NESTED, too_large
from runner.core.plain_text import of_class
from runner.core.settings import MOST, queue_name

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A finite number of seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return number


class Age(click.ParamType[int]):
    """How long ago, in milliseconds: ``7d``, ``24h``, ``30m``, ``90s``."""

    name = "age"
    _UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds. Raises a usage error."""
        if isinstance(value, int):
            return value
        number, unit = value[:-1], self._UNITS.get(value[-1:])
        if unit is None or not (number.isascii() and number.isdigit()) or int(number) > MOST:
            self.fail(f"{value!r} is not an age such as 7d, 24h, 30m or 90s", param, ctx)
        return int(number) * unit * 1000


class Text(click.types.StringParamType):
    """Text that a store takes. An empty one is a mistake (``--branch "$UNSET"``), not the default."""

    name = "text"

    def __init__(self, empty: bool = False) -> None:
        self._empty = empty  #: whether none is an answer, too

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises a usage error."""
        text = str(super().convert(value, param, ctx))
        if not text and not self._empty:
            self.fail("it is empty", param, ctx)
        if text.encode("utf-8", "replace").decode() != text:
            self.fail(f"{text[:80]!r} is not UTF-8 text", param, ctx)
        return text


TEXT = Text()
ANY_TEXT = Text(empty=True)


class Count(click.IntRange):
    """How many, at most `MOST`."""

    name = "whole number"

    def __init__(self, min: int) -> None:
        super().__init__(min=min, max=MOST)


def text(*names: str, metavar: str, help: str | None = None, **more: Any) -> Callable[[F], F]:
    """Declare an option that takes text."""
    return click.option(*names, type=TEXT, metavar=metavar, help=help, **more)


def _setting(name: str, variable: str, metavar: str, help: str) -> Callable[[F], F]:
    """An option that holds for this process and those it starts: no command sees its value."""

    def hold(_: click.Context, option: click.Parameter, value: str | None) -> None:
        if value:
            os.environ[variable] = queue_name(value) if option.name == "queue" else value

    return text(name, metavar=metavar, help=help, expose_value=False, callback=hold)


redis_url = _setting(
    "--redis-url",
    "RUNNER_REDIS_URL",
    "URL",
    "Redis for state (RUNNER_REDIS_URL); several: URL,URL. Default: an embedded server.",
)
broker_url = _setting(
    "--broker-url", "RUNNER_BROKER_URL", "URL", "Celery's broker (RUNNER_BROKER_URL). Default: the Redis for state."
)
queue = _setting(
    "--queue",
    "RUNNER_QUEUE",
    "Q",
    "The Celery queue (RUNNER_QUEUE). Default: runner; of the embedded server, one for each Python environment.",
)
partition = click.option(
    "--partition", type=Count(min=1), metavar="I", help="Serve only server number I of those in --redis-url."
)
run_id = click.argument("run_id", type=TEXT, metavar="RUN")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else.")


def json_and_url(command: F) -> F:
    """Declare ``--json`` and ``--redis-url``, as all commands have that read or change runs."""
    return as_json(redis_url(command))


def seconds(name: str, least: float, help: str) -> Callable[[F], F]:
    """Declare an option that takes a number of seconds, ``least`` at the least."""
    return click.option(name, type=Seconds(min=least), metavar="SECONDS", help=help)


def branch(help: str) -> Callable[[F], F]:
    """Declare ``--branch NAME``."""
    return text("--branch", metavar="NAME", help=help)


def inputs(help: str) -> Callable[[F], F]:
    """Declare ``--input K=V``, which can be repeated; the command gets them as ``pairs``."""
    return click.option("--input", "pairs", multiple=True, metavar="K=V", help=help)


detach = click.option("--detach", is_flag=True, help="Exit without waiting.")


def check_broker() -> None:
    """Raise `StoreUnreachable` unless the brokers that were named answer, and `UsageError` for one that is none."""
    if os.environ.get("RUNNER_BROKER_URL"):
        from runner.client.store import named_servers
        from runner.tasks.broker import check  # Celery takes a while to import

        for server in named_servers():
            check(server.broker)


def check_login(login: str | None) -> None:
    """Raise `UsageError` unless it is none, or a user and a password for Flower."""
    if login and not (all(login.partition(":")[::2]) and login.isascii()):
        raise UsageError("--basic-auth or RUNNER_FLOWER_AUTH must be USER:PASSWORD, in ASCII")


def read_inputs(pairs: tuple[str, ...], file: str | None) -> dict[str, Any]:
    """``--inputs FILE`` (JSON, ``-`` for stdin), then each ``--input k=v`` (text) or ``k:=v`` (JSON) over it."""
    inputs: dict[str, Any] = {}
    if file is not None:
        try:
            found = json_of(text_of(_bytes_of(file), f"--inputs {file}"), f"--inputs {file}")
        except OSError as error:
            raise BadInput(f"--inputs {file} cannot be read: {error.strerror}") from None
        if not isinstance(found, dict):
            raise BadInput(f"--inputs {file} must hold a JSON object, not {of_class(found)}")
        inputs.update(found)
    for pair in pairs:
        name, found_sign, value = pair.partition("=")
        if not found_sign or not name.strip(":"):
            raise BadInput(f"--input {pair!r} is neither name=text nor name:=JSON")
        if not pair.isprintable() and pair.encode("utf-8", "replace").decode() != pair:
            raise BadInput(f"--input {name!r} is not UTF-8 text")
        if name.endswith(":"):
            inputs[name[:-1]] = json_of(value, f"--input {name[:-1]}")
        else:
            inputs[name] = value
    return inputs


def as_before(inputs: dict[str, Any], pairs: tuple[str, ...], before: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs over others: text over a list or an object is taken as JSON. Raises `BadInput` where that is none."""
    found = dict(inputs)
    for name in {pair.partition("=")[0] for pair in pairs} & before.keys():
        was = before[name]
        kind = "a list" if isinstance(was, list) else "an object" if isinstance(was, dict) else ""
        if kind and isinstance(found[name], str):
            try:
                found[name] = json_of(found[name], name)
            except BadInput:
                found[name] = None
            if type(found[name]) is not type(was):
                raise BadInput(
                    f"the input {name!r} is {kind}: give it as JSON, as in --input {name}:='{_short(was)}'; "
                    f"text in its place is --input {name}:='\"TEXT\"'"
                )
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else "[...]" if isinstance(value, list) else "{...}"


def _bytes_of(file: str) -> bytes:
    with open(0 if file == "-" else file, "rb", closefd=file != "-") as opened:
        found = opened.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise BadInput(too_large(f"--inputs {file}"))
        return found


def text_of(data: bytes, where: str) -> str:
    """Return the text of a file of inputs, or a line, without a byte order mark. Raises `BadInput` with ``where``."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{where} is not UTF-8 text") from None


def json_of(text: str, where: str) -> Any:
    """The value of a JSON text. Raises `BadInput`, which says where it is."""
    try:
        return json.loads(text, parse_constant=_no_json, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise BadInput(f"{where} is nested too deeply: more than {MOST_NESTED} lists and objects") from None
    except _Duplicate:
        name, line = _find_duplicate(text)
        place = f", line {line}" if "\n" in text.strip() else ""
        raise BadInput(f"{where}{place}: the name {name[:80]!r} is given twice in one object") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} " if "\n" in text.strip() else ""
        raise BadInput(f"{where} is not JSON: {error.msg}: {place}column {error.colno}") from None
    except ValueError as error:
        raise BadInput(f"{where} is not JSON: {error}") from None


class _Duplicate(Exception):
    """A name stands twice in an object: the first of its two values would be lost."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Duplicate
    return found


_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(:?)|[{}]', re.DOTALL)


def _find_duplicate(text: str) -> tuple[str, int]:
    """The first name of a JSON text that stands twice in its object, and the line in which it does so again."""
    objects: list[set[str]] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            objects.append(set())
        elif token[0] == "}":
            objects.pop()
        elif token[2]:
            name = json.loads(f'"{token[1]}"')
            if name in objects[-1]:
                return name, text.count("\n", 0, token.start()) + 1
            objects[-1].add(name)
    raise ValueError("no name occurs twice in an object")


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
