"""Defers the code of packages until something in them is first looked up, as most types of OpenAI's client never are.

A module of such a package that is imported by its own name is available at once.
"""

import sys
import threading
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from runner.core.fork_safe_lock import ForkSafeLock

_names: set[str] = set()


def defer(*names: str) -> None:
    """Defer the code of these packages, unless they are imported already."""
    _names.update(names)
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Deferring(spec.loader)
        return spec


class LoaderAround(Loader):
    """Loads a module as another loader does, but for how its code is run."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module, as that loader does."""
        return self._loader.create_module(spec)


class _Deferring(LoaderAround):
    """Loads one package, and runs its code later."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self._lock = ForkSafeLock()
        self._runs_in = 0  # the thread that runs it, which no forked process has
        self._has_run = False

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(__getattr__=partial(self._look_up, module), __dir__=partial(self._list, module))

    def _look_up(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a package that has not run yet; other threads wait until it has run completely."""
        if name == "__all__" or not name.startswith("__"):
            with self._lock:
                self._run(module)
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    def _list(self, module: ModuleType) -> list[str]:
        with self._lock:
            self._run(module)
            return sorted(vars(module))

    def _run(self, module: ModuleType) -> None:
        """Run the package's code once, and again after an error, as another import would."""
        if self._has_run or self._runs_in == threading.get_ident():
            return
        self._runs_in = threading.get_ident()
        try:
            self._loader.exec_module(module)
            self._has_run = True
        finally:
            self._runs_in = 0
