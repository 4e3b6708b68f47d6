"""The YAML of a class of crews: ``config/agents.yaml`` and ``config/tasks.yaml`` beside the file that has the class.

An entry is what an `Agent` or a `Task` is made with. Names in it (of a model, tools, an agent, other tasks) are those
of the class's methods: they become what those make when the entry is asked for.
"""

import difflib
import sys
from collections.abc import Callable, Iterable
from operator import call
from pathlib import Path
from typing import Any

from runner.core.errors import BadCrew
from runner.project.decorators import marked


class Entries(dict[str, Any]):
    """The entries of one file, by name; each is resolved when it is asked for."""

    def __init__(self, owner: Any, kind: str, file: Path | None) -> None:
        super().__init__(_read(file) if file is not None and file.is_file() else {})
        self._owner, self._kind, self._file = owner, kind, file

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise BadCrew(f"{type(self._owner).__name__}: {self._missing(name)}")
        entry = super().__getitem__(name)
        return self._resolved(name, entry) if isinstance(entry, dict) else entry

    def _missing(self, name: str) -> str:
        if self._file is None or not self._file.is_file():
            return f"no such file: {self._place}, where {self._kind} {name!r} is looked for"
        return f"{self._place} has no {self._kind} {name!r}{_near(name, self)}"

    @property
    def _place(self) -> str:
        """The file, as seen from the file that has the class."""
        if self._file is None:
            return f"{self._kind}s_config"
        base = base_of(self._owner)
        return str(self._file.relative_to(base) if self._file.is_relative_to(base) else self._file)

    def _resolved(self, entry: str, given: dict[str, Any]) -> dict[str, Any]:
        """An entry with what its names mean; a model, or a class, that no method has is left as it is."""
        found = {key: value.strip() if isinstance(value, str) else value for key, value in given.items()}

        def meant(key: str, what: str, use: Callable[[Any], Any], value: Any) -> Any:
            return use(self._method(entry, key, what, value)) if isinstance(value, str) else value

        def mean(key: str, what: str, use: Callable[[Any], Any]) -> None:
            value = found.get(key)
            if isinstance(value, list):
                found[key] = [meant(key, what, use, one) for one in value]
            elif value is not None:
                found[key] = meant(key, what, use, value)

        mean("tools", "tool", call)
        mean("step_callback", "callback", _itself)
        if self._kind == "task":
            mean("agent", "agent", call)
            mean("context", "task", call)
            mean("callback", "callback", _itself)
            mean("callbacks", "callback", _itself)
            for key in ("output_json", "output_pydantic"):
                mean(key, key, _itself)
            if isinstance(callbacks := found.pop("callbacks", None), list):
                found["callback"] = _all_of(callbacks)
        models = list(marked(type(self._owner), "llm"))
        for key in ("llm", "function_calling_llm"):
            if found.get(key) in models:
                found[key] = getattr(self._owner, found[key])()
        return found

    def _method(self, entry: str, key: str, what: str, name: str) -> Any:
        there = list(marked(type(self._owner), what))
        if name not in there:
            raise BadCrew(
                f"{type(self._owner).__name__}: {self._place}: {key} of {self._kind} {entry!r} names {name!r}, and no "
                f"method of the class with @{what} has that name{_near(name, there)}"
            )
        return getattr(self._owner, name)


def base_of(owner: Any) -> Path:
    """The folder of the file that has the class of an object."""
    module = sys.modules.get(type(owner).__module__)
    return Path(getattr(module, "__file__", None) or "class.py").resolve().parent


def _read(file: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadCrew(f"{file.name}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found or {}, dict):
        raise BadCrew(f"{file.name}: not a mapping of names to entries")
    return found or {}


def _itself(thing: Any) -> Any:
    return thing


def _all_of(callbacks: Iterable[Callable[[Any], Any]]) -> Callable[[Any], None]:
    called = list(callbacks)

    def each(output: Any) -> None:
        for one in called:
            one(output)

    return each


def _near(name: str, there: Iterable[str]) -> str:
    known = sorted(there)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(known[:6])}" if known else ""
