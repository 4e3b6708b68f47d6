"""What a task gave back, and how it stands in the store: as JSON, never as an object to be rebuilt by name."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from runner.errors import BadInput


class TaskOutput(BaseModel):
    """The output of one task.

    ``raw`` is always text. ``json_dict`` is there when the task gave a dict, a list or a model; ``pydantic`` when the
    code at hand names a model for it (``output_pydantic``, or the return annotation of ``run``).
    """

    name: str | None = None
    description: str = ""
    expected_output: str | None = None
    raw: str = ""
    json_dict: Any = None
    pydantic: Any = Field(default=None, exclude=True)
    agent: str = ""

    def __str__(self) -> str:
        return self.raw

    def __getitem__(self, key: str) -> Any:
        if self.json_dict is None:
            raise KeyError(f"task {self.name!r} gave text, not a dict: use .raw")
        return self.json_dict[key]

    def to_dict(self) -> dict[str, Any]:
        """The output as a dict; empty for plain text."""
        return dict(self.json_dict) if isinstance(self.json_dict, Mapping) else {}


class UsageMetrics(BaseModel):
    """What a kickoff spent in this process. What a checkpoint had of it is not in here."""

    total_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    successful_requests: int = 0

    def add(self, prompt_tokens: int, completion_tokens: int) -> None:
        """One more call that was answered."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.total_tokens += prompt_tokens + completion_tokens
        self.successful_requests += 1


class LiteAgentOutput(BaseModel):
    """What an agent that was asked without a crew gave back."""

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
            "a task returned bytes that are no UTF-8 text: write them to a file and return its path, "
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


def from_edit(key: str, edit: Any, before: Any) -> Any:
    """What a person's edit is in the place of a value: text where that was text, else JSON of its kind.

    Given as text; a value that is no text is taken as it is. Raises `BadInput`.
    """
    if not isinstance(edit, str):
        return to_jsonable_python(edit, fallback=_refuse, inf_nan_mode="null")
    if before is None or isinstance(before, str):
        return edit
    try:
        found = json.loads(edit)
    except ValueError as error:
        raise BadInput(f"the output of task {key!r} is JSON, and the edit is not: {error}") from None
    if _kind(found) != _kind(before):
        raise BadInput(f"the output of task {key!r} is {_kind(before)} in JSON, and the edit is not")
    return found


def _kind(value: Any) -> str:
    kinds = (("an object", dict), ("a list", list), ("text", str), ("true or false", bool), ("a number", int | float))
    return next((name for name, kind in kinds if isinstance(value, kind)), "nothing")


def fitted(key: str, model: type[BaseModel] | None, data: Any) -> BaseModel | None:
    """The stored JSON of a task's output as the model that its task declares. Raises `BadInput`."""
    if model is None or data is None:
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(
            f"the output of task {key!r} is no {model.__name__} ({misfit(error)}): it was edited, or the code is "
            "another: fork with an edit that fits"
        ) from None


def misfit(error: ValidationError) -> str:
    """What does not fit, field by field, in a line."""
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in error.errors()[:3])


def stored(raw: str, json_dict: Any) -> dict[str, Any]:
    """The stored form: ``{"raw": text}`` or, where the text is just the JSON's own, ``{"json": value}``."""
    if json_dict is None:
        return {"raw": raw}
    return {"json": json_dict} if raw == json.dumps(json_dict, ensure_ascii=False) else {"raw": raw, "json": json_dict}


def dump(raw: str, json_dict: Any) -> str:
    """`stored` as text. Raises `TypeError` if it has none."""
    return to_text(stored(raw, json_dict))


def to_text(record: Mapping[str, Any]) -> str:
    """A record as it is stored. Raises `TypeError` if it has no text."""
    try:
        return to_json(record, inf_nan_mode="null").decode()
    except PydanticSerializationError:  # the text came from a file name, or was cut in the middle of an emoji
        raise TypeError(
            "a task returned text with half of a surrogate pair, which is no UTF-8: "
            "return text.encode(errors='replace').decode()"
        ) from None


def load(stored: Mapping[str, Any]) -> tuple[str, Any]:
    """The inverse of `dump`, from the decoded record."""
    data = stored.get("json")
    raw = stored.get("raw")
    return (json.dumps(data, ensure_ascii=False) if raw is None else str(raw)), data


def _refuse(value: Any) -> Any:
    raise TypeError(
        f"a task returned a {type(value).__qualname__}, which is not JSON: "
        "return text, a dict, a list or a pydantic model"
    )
