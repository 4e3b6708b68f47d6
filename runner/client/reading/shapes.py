"""The declared types of a crew's outputs, stored with the run, so that edits are validated without the code."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from runner.core.encoding import misfit
from runner.core.errors import BadInput


def dump(models: Mapping[str, type[BaseModel]]) -> str:
    """Return the models by task as stored with a run, each schema once; "" if there are none."""
    names: dict[str, str] = {}
    schemas: dict[str, Any] = {}
    for task, model in models.items():
        name = f"{model.__module__}.{model.__qualname__}"
        with contextlib.suppress(Exception):  # of a type that JSON does not know there is no schema
            if name not in schemas:
                schemas[name] = model.model_json_schema()
            names[task] = name
    return json.dumps({"tasks": names, "schemas": schemas}, ensure_ascii=False) if names else ""


def refuse_misfit(shapes: str, key: str, before: Any, after: Any) -> None:
    """Raise `BadInput` if the edited output of a task or method does not fit its declared type, and the old one did."""
    known = json.loads(shapes) if shapes else {"tasks": {}}
    name = known["tasks"].get(key)
    if name is None:
        return
    from runner.flows.schema import model_of  # whoever only reads a crew file needs no flows

    try:
        model = model_of(known["schemas"][name])
        model.model_validate(before)
    except Exception:  # the model is not all in its schema
        return
    try:
        model.model_validate(after)
    except ValidationError as error:
        raise BadInput(f"the edit of task {key!r} is not a valid {model.__name__} ({misfit(error)})") from None
