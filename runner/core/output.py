"""A task's output, and its stored form: JSON, never an object to be rebuilt by name."""

import contextlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from runner.core import encoding
from runner.core.class_names import Names
from runner.core.encoding import NotSerializable
from runner.core.errors import BadInput, TaskError
from runner.core.inputs import MOST_NESTED, nested_too_deep
from runner.core.plain_text import of_class
from runner.core.stored_output import DEFLATED, load

_VALUE = "value"  #: where a record says it
_FROM = 256  #: a shorter text is not compressed
_LARGE = 1 << 18  #: from here on, compressing well takes too long


@dataclass(frozen=True, slots=True)
class ValueTypes:
    """The types of a stored value: ``{"types": entries}``, and its ``json`` if that differs from the output's own."""

    record: Mapping[str, Any]
    names: Names | None = field(default=None, compare=False)

    def __deepcopy__(self, memo: Any) -> "ValueTypes":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueTypes, (self.record,)


class TaskOutput(BaseModel):
    """The output of one task.

    ``value`` is what the task returned, with its type. ``raw`` is always text. ``json_dict`` is set if the task
    returned a dict, a list or a model; ``pydantic`` if the code names a model for it (``output_pydantic``, or the
    return annotation of ``run``).
    """

    name: str | None = None
    description: str = ""
    expected_output: str | None = None
    raw: str = ""
    json_dict: Any = None
    pydantic: Any = Field(default=None, exclude=True)
    agent: str = ""

    _value_types: ValueTypes | None = PrivateAttr(default=None)

    @property
    def value(self) -> Any:
        """What the task returned, rebuilt from what is stored; for an agent its text, or the model that was asked for.

        Raises `BadInput` if an edit does not fit, or the code no longer has a class of that name.
        """
        if self._value_types is None:
            plain = self.raw if self.json_dict is None else self.json_dict
            return plain if self.pydantic is None else self.pydantic
        record, names = self._value_types.record, self._value_types.names
        data = _base(self.raw, self.json_dict, record)
        try:
            return encoding.decode(data, record.get("types", ()), names.find if names is not None else lambda _: None)
        except BadInput as error:
            raise BadInput(f"the output of task {self.name!r} cannot be restored as a value: {error}") from None

    def __str__(self) -> str:
        return self.raw

    def __getitem__(self, key: str) -> Any:
        if self.json_dict is None:
            raise KeyError(f"task {self.name!r} returned text, not a dict: use .raw")
        return self.json_dict[key]

    def to_dict(self) -> dict[str, Any]:
        """The output as a dict; empty for plain text."""
        return dict(self.json_dict) if isinstance(self.json_dict, Mapping) else {}


class UsageMetrics(BaseModel):
    """The tokens that a kickoff used in this process, without those from before a restored checkpoint."""

    total_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    successful_requests: int = 0

    def add(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Add one answered call."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.total_tokens += prompt_tokens + completion_tokens
        self.successful_requests += 1

    def include(self, other: "UsageMetrics") -> None:
        """Add those of another."""
        for name, many in other:
            setattr(self, name, getattr(self, name) + many)


class LiteAgentOutput(BaseModel):
    """The output of an agent that was asked without a crew."""

    raw: str = ""
    pydantic: Any = Field(default=None, exclude=True)
    agent_role: str = ""
    usage_metrics: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list)

    def __str__(self) -> str:
        return self.raw


def from_value(value: Any) -> tuple[str, Any]:
    """Turn what a callable returned into ``(raw, json_dict)``.

    Text stays as it is; a model, dict or list becomes JSON and its text; ``None`` becomes empty text; a number or a
    bool becomes its JSON text. Bytes are text if they are UTF-8.
    """
    if value is None:
        return "", None
    if isinstance(value, str):
        return value, None
    try:
        return _from_other(value)
    except UnicodeDecodeError:
        raise TypeError(
            "a task returned bytes that are not UTF-8 text: write them to a file and return its path, "
            "or return base64.b64encode(data).decode()"
        ) from None


def _from_other(value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes):
        return value.decode(), None
    if isinstance(value, TaskOutput):
        return value.raw, value.json_dict
    data = to_jsonable_python(value, fallback=_refuse, inf_nan_mode="null")  # as pydantic writes them
    text = value.model_dump_json() if isinstance(value, BaseModel) else json.dumps(data, ensure_ascii=False)
    return text, data if isinstance(data, dict | list) else None


def typed_output(key: str, value: Any, names: Callable[[], Names]) -> TaskOutput:
    """Return what task ``key`` returned in its stored form: text, JSON, and the types that the JSON lacks.

    ``names`` returns the classes that the task's code can name. Raises `TaskError` if the value cannot be restored.
    """
    if type(value) is str:
        return TaskOutput(name=key, raw=value)
    known = names()
    try:
        data, entries = encoding.encode(value.value if isinstance(value, TaskOutput) else value, known.name_of)
    except NotSerializable as error:
        raise TaskError(f"task {key!r} returned {error}") from None
    output = TaskOutput(name=key)
    if isinstance(value, TaskOutput):
        output.raw, output.json_dict = value.raw, value.json_dict
    else:
        output.json_dict = data if isinstance(data, dict | list) else None
        output.raw = _text(value, data)
    record: dict[str, Any] = {"types": entries} if entries else {}
    if _base(output.raw, output.json_dict, {}) != data or (
        data is not None and not isinstance(data, str | dict | list)
    ):
        record["json"] = data
    if record:
        output._value_types = ValueTypes(record, known)
    return output


def _text(value: Any, data: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | bytes | bytearray):
        return str(data)
    if isinstance(value, BaseModel):
        with contextlib.suppress(PydanticSerializationError):  # bytes in it that are no text: as we have them
            return value.model_dump_json()
    return json.dumps(data, ensure_ascii=False)


def _base(raw: str, data: Any, record: Mapping[str, Any]) -> Any:
    """The JSON from which a value is rebuilt."""
    return record.get("json", raw if data is None else data)


def revised(key: str, before: Mapping[str, Any], edit: Any) -> dict[str, Any]:
    """Return the record of an output that a person edited, given as text or JSON, with the types of the value before.

    Raises `BadInput`.
    """
    raw, data = load(before)
    record = before.get(_VALUE)
    if record is None or ("json" in record and data is not None):  # what is shown is not all of it
        return stored(*from_value(from_edit(key, edit, raw if data is None else data)))
    was = _base(raw, data, record)
    now = from_edit(key, edit, was)
    if isinstance(now, str) and now[:1] == '"' and raw[:1] == '"':  # as it is shown
        with contextlib.suppress(ValueError):
            now = json.loads(now)
    if was is None and data is None and isinstance(edit, str):
        return stored(edit, None)
    try:
        entries = encoding.types_after_edit(record.get("types", ()), was, now)
    except BadInput as error:
        raise BadInput(f"the output of task {key!r} is of another type: {error}") from None
    after = stored(*from_value(now)) if raw == was else stored(json.dumps(now, ensure_ascii=False), _container(now))
    value = {"types": entries} if entries else {}
    if now != _base(*load(after), {}) or not isinstance(now, str | dict | list):
        value["json"] = now
    return {**after, _VALUE: value} if value else after


def edited(key: str, before: TaskOutput, edit: Any) -> TaskOutput:
    """Return an output whose value a person edited; see `revised`. Raises `BadInput`."""
    names = before._value_types.names if before._value_types is not None else None
    now = from_record(revised(key, record(before), edit), names)
    found = before.model_copy(update={"raw": now.raw, "json_dict": now.json_dict, "pydantic": None})
    found._value_types = now._value_types
    return found


def _container(data: Any) -> Any:
    return data if isinstance(data, dict | list) else None


def from_edit(key: str, edit: Any, before: Any) -> Any:
    """Return the value that a person's edit stands for: text if the value was text, else JSON of the same kind.

    An ``edit`` that is not text is taken as it is. Raises `BadInput`.
    """
    if not isinstance(edit, str):
        return to_jsonable_python(edit, fallback=_refuse, inf_nan_mode="null")
    if before is None or isinstance(before, str):
        return edit
    try:
        found = json.loads(edit)
    except ValueError as error:
        raise BadInput(f"the output of task {key!r} is JSON, but the edit is not: {error}") from None
    if _kind(found) != _kind(before):
        raise BadInput(f"the output of task {key!r} is {_kind(before)} in JSON, but the edit is not")
    return found


def _kind(value: Any) -> str:
    kinds = (("an object", dict), ("a list", list), ("text", str), ("true or false", bool), ("a number", int | float))
    return next((name for name, kind in kinds if isinstance(value, kind)), "nothing")


def fitted(key: str, model: type[BaseModel] | None, data: Any) -> BaseModel | None:
    """Validate the stored JSON of a task's output with the model that the task declares. Raises `BadInput`."""
    if model is None or data is None:
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(
            f"the output of task {key!r} is not a valid {model.__name__} ({encoding.misfit(error)}): it was "
            "edited, or the code has changed: fork with an edit that fits"
        ) from None


def stored(raw: str, json_dict: Any) -> dict[str, Any]:
    """Return the stored form: ``{"raw": text}`` or, if the text is just the JSON's own, ``{"json": value}``."""
    if json_dict is None:
        return {"raw": raw}
    return {"json": json_dict} if raw == json.dumps(json_dict, ensure_ascii=False) else {"raw": raw, "json": json_dict}


def dump(raw: str, json_dict: Any) -> str:
    """`stored` as text. Raises `TypeError` if it is not JSON."""
    return to_text(stored(raw, json_dict))


def to_text(record: Mapping[str, Any]) -> str:
    """Serialize a record as it is stored. Raises `TypeError` if it is not JSON."""
    try:
        return to_json(record, inf_nan_mode="null").decode()
    except PydanticSerializationError:  # the text came from a file name, or was cut in the middle of an emoji
        if nested_too_deep(record):
            raise TypeError(f"a task returned more than {MOST_NESTED} nested lists and objects") from None
        raise TypeError(
            "a task returned text with half of a surrogate pair, which is not valid UTF-8: "
            "return text.encode(errors='replace').decode()"
        ) from None


def pack_output(rest: str) -> bytes:
    """Return what follows sequence and token, which scripts read, in a record: JSON, or compressed if shorter.

    A zero byte, which JSON never contains, marks the compressed form.
    """
    text = rest.encode()
    if len(text) < _FROM:
        return text
    packer = zlib.compressobj(9 if len(text) < _LARGE else 1, zlib.DEFLATED, -15)
    packed = packer.compress(text) + packer.flush()
    return text if len(packed) > len(text) * 0.95 else DEFLATED.encode() + packed


def record(output: TaskOutput) -> dict[str, Any]:
    """Return an output in its stored form, with the types of its value."""
    found, types = stored(output.raw, output.json_dict), _value_types_of(output)
    return found if types is None else {**found, _VALUE: dict(types.record)}


def from_record(stored: Mapping[str, Any], names: Names | None = None, **about: Any) -> TaskOutput:
    """Rebuild the output of a record. ``names`` returns the classes of the code at hand; ``about`` are other fields."""
    raw, data = load(stored)
    found = TaskOutput(raw=raw, json_dict=data, **about)
    if _VALUE in stored:
        found._value_types = ValueTypes(stored[_VALUE], names)
    return found


def plain(output: TaskOutput) -> TaskOutput:
    """Return the output with a value taken from its JSON or its model only."""
    output._value_types = None
    return output


def named(output: TaskOutput, names: Callable[[], Names]) -> TaskOutput:
    """Return the output with a value rebuilt from the classes that ``names`` returns."""
    if (types := _value_types_of(output)) is not None:
        output._value_types = replace(types, names=names())
    return output


def _value_types_of(output: TaskOutput) -> ValueTypes | None:
    """Reads the private field directly: pydantic's own way takes two calls, and raises and catches an error."""
    private = output.__pydantic_private__
    return private["_value_types"] if private is not None else None


def _refuse(value: Any) -> Any:
    raise TypeError(
        f"a task returned {of_class(value)}, which is not JSON: return text, a dict, a list or a pydantic model"
    )
