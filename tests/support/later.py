"""Packages that few tests use and that take seconds to import: each process of a session reads all test files."""

import gc
import importlib
import importlib.util
import sys
from typing import Any

import pytest

NAMES: list[str] = []  #: of all of them


class Later:
    """A package that is imported when it is first used. Where it is not installed the tests of the file are skipped."""

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
        self._name = name
        NAMES.append(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks everything in a file for such
            raise AttributeError(name)
        if self._name not in sys.modules:
            importlib.import_module(self._name)
            gc.freeze()  # as what is there when all is collected: nothing looks through it again
        module = sys.modules[self._name]
        try:
            return getattr(module, name)
        except AttributeError:  # a module of it that was not imported yet
            return importlib.import_module(f"{self._name}.{name}")
