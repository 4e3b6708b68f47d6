"""Validates a run's inputs: JSON under valid names, with limits on depth and size."""

import difflib
import json
from collections.abc import Mapping, Sequence, Set
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from runner.core.errors import BadInput
from runner.core.plain_text import why_no_name

KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "boolean": ("true or false", (bool,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (float, int)),
    "array": ("a list", (list, tuple, set, frozenset)),
    "object": ("an object", (dict,)),
}
"""What an input may be in JSON that is no text: what people call it, and which types it has in Python."""

_UNIONS = (Union, UnionType)

BEFORE_KICKOFF = "before_kickoff"
"""The task of a run whose output has the inputs as a crew's callbacks left them, for all others."""

MOST_NESTED = 200  #: lists and objects in each other: the parsers of JSON that are in use give up at 250 to 1000
MOST_BYTES = 64 * 2**20  #: of all inputs, as JSON: each task is handed them


def as_json(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the valid inputs after a round trip through JSON, and the reasons why the others are invalid, by name."""
    fit: dict[str, Any] = {}
    unfit = {}
    for name, value in inputs.items():
        try:
            if nested_too_deep(value):
                raise RecursionError  # before those who would hit it: not all of them recover
            text = json.dumps({name: value}, allow_nan=False, ensure_ascii=False)
            text.encode()
            if why := _bad_name(name):
                unfit[name] = why
            else:
                fit |= json.loads(text)
        except UnicodeEncodeError:
            unfit[name] = f"the input {name!r} contains half of a surrogate pair, which is not valid UTF-8"
        except RecursionError:
            unfit[name] = f"the input {name!r} is nested too deeply: more than {MOST_NESTED} lists and objects"
        except (TypeError, ValueError) as error:
            unfit[name] = f"the inputs are not JSON: {error}"
    return fit, unfit


def given_as_json(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the inputs of a run. Raises `BadInput` with what is wrong."""
    fit, unfit = as_json(inputs)
    for why in unfit.values():
        raise BadInput(why)
    return fit


def stored(inputs: Mapping[str, Any]) -> str:
    """Return the inputs as they are stored. Raises `BadInput` with what is wrong."""
    if not inputs:
        return "{}"
    text = json.dumps(given_as_json(inputs), ensure_ascii=False, sort_keys=True)
    if len(text.encode()) > MOST_BYTES:
        raise BadInput(too_large("the inputs"))
    return text


def too_large(what: str) -> str:
    """Return the error for inputs over `MOST_BYTES`."""
    return f"{what}: more than {MOST_BYTES // 2**20} MiB of JSON; put large data into a file and pass its name"


def kind_of(declared: Any) -> str:
    """Return the JSON type of a declared type; "" for text, for types that accept text, and for unknown ones."""
    of = {_kind(one) for one in (get_args(declared) if get_origin(declared) in _UNIONS else (declared,))} - {"null"}
    return of.pop() if len(of) == 1 else "number" if of == {"number", "integer"} else ""


def _kind(declared: Any) -> str:
    declared = get_origin(declared) or declared
    if declared is NoneType:
        return "null"
    of = (kind for kind, (_, types) in KINDS.items() if isinstance(declared, type) and issubclass(declared, types))
    return next(of, "")


def typed(inputs: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Convert inputs that are text to their declared types. Raises `BadInput` for one that does not fit.

    Text that is not JSON stays text where a list or an object is declared, because such code may accept text, too.
    """
    found = dict(inputs)
    for name in inputs.keys() & kinds.keys():
        if isinstance(inputs[name], str):
            word, types = KINDS[kinds[name]]
            try:
                value = json.loads(inputs[name].strip())
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, types) and (isinstance(value, bool) is (bool in types)):
                found[name] = value
            elif kinds[name] not in ("array", "object"):
                raise BadInput(f"the input {name!r} is {word}, not {inputs[name][:80]!r}")
    return found


def nested_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested deeper than `MOST_NESTED`, or contain themselves."""
    level: list[Any] = [value] if isinstance(value, list | tuple | Mapping) else []
    for _ in range(MOST_NESTED):
        if not level:  # as of nearly all: a batch asks of each of its lines
            return False
        inside = (child for one in level for child in (one.values() if isinstance(one, Mapping) else one))
        level = list({id(child): child for child in inside if isinstance(child, list | tuple | Mapping)}.values())
    return bool(level)


def _bad_name(name: object) -> str:
    if not isinstance(name, str):
        return f"the name of an input must be text, not {name!r}"
    if not name.strip():
        return "an input has an empty name"
    why = why_no_name(name)
    return f"the name of the input {name[:80]!r} {why}" if why else ""


def as_begun(inputs: Mapping[str, Any], output: str | None) -> Mapping[str, Any]:
    """Return the inputs of a run's tasks; ``output`` is that of the task `BEFORE_KICKOFF`, None without one."""
    try:
        begun = json.loads(output)["inputs"] if output is not None else inputs
    except (ValueError, TypeError, LookupError):  # a task that is called so, and is no callback
        return inputs
    return begun if isinstance(begun, dict) else inputs


def refuse_missing(
    needed: Set[str],
    inputs: Mapping[str, Any],
    what: str = "crew",
    instead: str = "",
    known: Set[str] = frozenset(),
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Raise `BadInput` if the crew (or ``what`` it is) needs an input that is missing.

    The message ends with ``instead``, and has the JSON types of the missing inputs (``kinds``) and the given inputs
    that the crew does not use, except ``known`` ones: one may be the missing input, misspelt.
    """
    if missing := sorted(needed - inputs.keys()):
        names = " and ".join(repr(name) + _what(name, kinds or {}) for name in missing)
        needs, give = ("inputs", "each") if len(missing) > 1 else ("input", "it")
        how = f"give {give} with --input {missing[0]}=... or inputs={{...}}{instead}"
        if others := sorted(inputs.keys() - needed - known):
            how += f"; given, and not named by the {what}: {', '.join(map(repr, others))}"
            how += _near(others[0], missing)
        raise BadInput(f"the {what} needs the {needs} {names}: {how}")


def _what(name: str, kinds: Mapping[str, str]) -> str:
    return f" ({KINDS[kinds[name]][0]})" if name in kinds else ""


def refuse_unknown(names: Sequence[str] | None, inputs: Mapping[str, Any], what: str, instead: str = "") -> None:
    """Raise `BadInput` for an input that is not among the ``names`` that ``what`` it is takes.

    ``names`` is None if it may take others. ``instead`` is part of the message if it takes none.
    """
    if names is not None and (unknown := [name for name in inputs if name not in names]):
        if not names:
            raise BadInput(f"the {what} takes no inputs, and {unknown[0]!r} is given{instead}")
        raise BadInput(
            f"the {what} has no input {unknown[0]!r}{_near(unknown[0], names)}; it has {', '.join(map(repr, names))}"
        )


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
