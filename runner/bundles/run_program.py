"""Loads the program of an unpacked bundle. Nothing of its code runs before that."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.bundles import loader, script
from runner.bundles.arguments import Given, arguments, given, optional
from runner.bundles.program import CALL, Program
from runner.core.context_value import ContextValue


def program(root: Path, module: str, attr: str, *, key: str, inputs: Mapping[str, Any], adapter: str = "") -> Program:
    """What a bundle has under the attribute of a program. Arguments that it takes are the inputs of their names."""
    called = attr.removesuffix(CALL)

    def do() -> object:
        with ContextValue(given, Given(inputs)):
            return _done(root, module, called, key)

    return Program(called, do, adapter)


def _done(root: Path, module: str, called: str, key: str) -> object:
    """In modules that are imported for real: what they kick off is kicked off, as in one process."""
    if called == script.NAME:
        found, was_run = loader.space_for(key, root).unexecuted(module)
        (script.run if was_run else script.run_file)(found)
        return None
    value: Any = loader.load(root, module, key=key, live=True)
    for name in called.split("."):
        if inspect.isclass(value) and not isinstance(inspect.getattr_static(value, name), (staticmethod, classmethod)):
            value = value(**arguments(value, called))
        value = getattr(value, name)
    if inspect.isclass(value):
        made = value(**arguments(value, called))
        value = getattr(made, next(method for method in loader.METHODS if hasattr(made, method)))
    return value(**optional(value))
