"""The state of a flow: a dict or a pydantic model with an ``id``. Each method has a copy, which is merged after it.

So no checkpoint and no other method sees unfinished changes. Changes are merged *by field* (a dict by key, a model by
field), and items that two methods append to one list follow each other. Only if two methods changed the same field is
there a conflict: the later one wins, and an event reports it.
"""

import copy
import pickle
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from runner.core.errors import BadFlow, BadInput
from runner.core.field_errors import format_field_errors
from runner.core.plain_text import of_class

State = dict[str, Any] | BaseModel
MISSING: Any = object()
"""In place of a field that is not there."""


class FlowState(BaseModel):
    """A base class for state models; any other model gets an ``id`` as well."""

    id: str = Field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class Patch:
    """The changes of a method: fields that were set, and fields that were removed."""

    put: Mapping[str, Any]
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)


def create(initial: Any, declared: Any) -> State:
    """Create the initial state: ``initial_state``, or an empty one of the type in ``Flow[...]``.

    Required fields of a model that are not given yet are left unset: the kickoff's inputs may provide them.
    """
    wanted = declared if initial is None else initial
    if isinstance(wanted, BaseModel):
        model = with_id(type(wanted))
        values = {name: copied(value) for name, value in fields(wanted).items() if not name.startswith("_")}
        return _identified(model.model_construct(**values))
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        model = with_id(wanted)
        try:
            return _identified(model())
        except ValidationError:
            return _identified(model.model_construct())
    if isinstance(wanted, Mapping):
        return _identified({name: copied(value) for name, value in wanted.items()})
    if wanted in (None, dict, typing.Any) or typing.get_origin(wanted) is dict or not isinstance(wanted, type):
        if initial is not None and wanted is initial and wanted is not dict:
            raise BadFlow(f"initial_state must be a dict or a pydantic model, not {of_class(initial)}")
        return _identified({})
    raise BadFlow(f"the state of a flow must be a dict or a pydantic model, not {wanted.__name__}")


@cache
def with_id(model: type[BaseModel]) -> type[BaseModel]:
    """Return the model if it has an ``id``, else a copy that has one."""
    if "id" in model.model_fields:
        return model
    return type(model.__name__, (model, FlowState), {"__module__": model.__module__, "__doc__": model.__doc__})


def state_id(state: State) -> str:
    """Return the state's id; "" if it has none."""
    return str(fields(state).get("id") or "")


def fields(state: State) -> dict[str, Any]:
    """Return the live values by field, including a model's private attributes."""
    if isinstance(state, dict):
        return dict(state)
    return {**state.__dict__, **(state.__pydantic_extra__ or {}), **(state.__pydantic_private__ or {})}


def put(state: State, patch: Patch) -> None:
    """Apply a patch in place. Its values were made by the state's own type, so they are not validated."""
    if isinstance(state, dict):
        state.update(patch.put)
        for name in patch.gone:
            state.pop(name, None)
        return
    for name, value in patch.put.items():
        _home(state, name)[name] = value
    for name in patch.gone:
        _home(state, name).pop(name, None)
    state.__pydantic_fields_set__.update(name for name in patch.put if name in type(state).model_fields)


def give(state: State, inputs: Mapping[str, Any]) -> None:
    """Put a kickoff's inputs into the state. Raises `BadInput` if they do not fit the model."""
    if isinstance(state, dict):
        state.update(inputs)
        return
    try:
        made = type(state).model_validate({**fields(state), **inputs})
    except ValidationError as error:
        raise BadInput(f"Invalid inputs for structured state: {format_field_errors(error)}") from None
    put(state, Patch(fields(made)))


def twin(state: State) -> State:
    """Return a deep copy. Objects that cannot be copied (a lock, a client) are shared."""
    memo: dict[int, Any] = {}
    if isinstance(state, dict):
        return {name: copied(value, memo) for name, value in state.items()}
    found = state.model_copy()
    for home in (found.__dict__, found.__pydantic_extra__, found.__pydantic_private__):
        for name, value in (home or {}).items():
            typing.cast(dict[str, Any], home)[name] = copied(value, memo)
    return found


def revised(state: State, values: Mapping[str, Any], gone: Iterable[str] = ()) -> State:
    """Return a copy of the state in which some fields have earlier values."""
    found = twin(state)
    put(found, Patch({name: _typed(found, name, value) for name, value in values.items()}, tuple(gone)))
    return found


def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy of a value, as deep as possible."""
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # something in it refuses to be copied, in its own way
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and type(value) in (list, tuple, set, frozenset):
            return type(value)(copied(item) for item in value)
        return value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Patch:
    """Return the patch from ``before`` to ``after``."""
    return Patch(
        {name: value for name, value in after.items() if not same(before.get(name, MISSING), value)},
        tuple(name for name in before if name not in after),
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type, recursively, even if they cannot be compared by ``==``."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    try:
        return bool(one == other)
    except Exception:  # an array says "which of the elements?"
        try:
            return pickle.dumps(one) == pickle.dumps(other)
        except Exception:
            return False


def dump(state: State, refuse: Callable[[str, Any], None]) -> dict[str, Any]:
    """Return the state as JSON.

    ``refuse`` is called with each field that is not JSON; unless it raises, the field is left out.
    """
    found: dict[str, Any] = {}
    model = state if isinstance(state, BaseModel) else None
    for name, value in fields(state).items():
        is_declared = model is not None and name in type(model).model_fields
        if model is not None and not is_declared and (name.startswith("_") or name not in (model.model_extra or {})):
            continue
        try:
            if model is not None and is_declared:
                found[name] = model.model_dump(mode="json", include={name}, warnings=False)[name]
            else:
                found[name] = to_jsonable_python(value)
        except Exception:  # a serializer may raise anything
            refuse(name, value)
    return found


def load(state: State, data: Mapping[str, Any]) -> None:
    """Restore the state from what `dump` wrote, typed by the current model. Raises `BadFlow` if it no longer fits."""
    if isinstance(state, dict):
        state.clear()
        state.update(data)
        return
    model = type(state)
    try:
        made = model.model_validate(dict(data))
    except ValidationError as error:
        raise BadFlow(
            f"the recorded state does not fit {model.__name__} as it is now: {format_field_errors(error)}"
        ) from None
    put(state, Patch({k: v for k, v in fields(made).items() if not k.startswith("_")}))


def _typed(state: State, name: str, value: Any) -> Any:
    """A field's value, converted from JSON to the declared type."""
    if isinstance(state, dict) or name not in type(state).model_fields:
        return value
    try:
        declared: Any = type(state).model_fields[name].annotation
        return TypeAdapter(declared).validate_python(value)
    except (ValidationError, PydanticUserError):
        return value


def _identified(state: State) -> State:
    if not state_id(state):
        put(state, Patch({"id": str(uuid4())}))
    return state


def _home(state: BaseModel, name: str) -> dict[str, Any]:
    """The dict of a model that holds a field."""
    if name in type(state).model_fields:
        return state.__dict__
    if state.__pydantic_private__ is not None and name in type(state).__private_attributes__:
        return state.__pydantic_private__
    return state.__pydantic_extra__ if state.__pydantic_extra__ is not None else state.__dict__
