"""Gives each bundle its own module namespace, so bundles in one process see neither each other's modules nor ours.

A bundle's modules have real names that no one else uses: ``tools.py`` is ``_crew_<hex>.tools`` in ``sys.modules``. So
whatever looks a module up by the name in a class or function (dataclasses, pydantic, pickle) finds the right one, and
the import system's own locks and rules for circular imports hold.

Inside, ``import tools`` still means the bundle's own ``tools``: each module has a copy of ``__builtins__`` whose
``__import__`` looks into the bundle first, as Python looks into a script's folder first. Functions that import by a
name in a string (``importlib.import_module`` and the like) are treated in the same way. Code outside the bundle imports
as ever.
"""

import builtins
import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from importlib import machinery
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles import frameworks
from runner.bundles.project import JSON_CREWS, has_source_folder, is_installed
from runner.bundles.reading import KickedOff, being_read
from runner.core.errors import BadCrew

PREFIX = "_crew_"

#: Names that a bundle cannot take: the first is always this product, the second the process's own main module.
_NEVER = frozenset({"runner", "__main__"})

#: Functions that take a module's name as a string first, by the module they are in.
_BY_NAME: Mapping[str, tuple[str, ...]] = {
    "importlib": ("import_module",),
    "importlib.util": ("find_spec",),
    "importlib.resources": (
        *("files", "contents", "is_resource", "open_binary", "open_text", "path", "read_binary", "read_text"),
    ),
    "pkgutil": ("get_data", "resolve_name"),
}


class Namespace:
    """The modules of one bundle, under one name."""

    def __init__(self, name: str, root: Path, only: str | None = None) -> None:
        self.name = name
        self.root = root
        self.last_used = 0
        self.lock = threading.RLock()  # one load at a time; imports inside have importlib's own locks
        self._only = only  # where the root holds more than the bundle: the one package that is the bundle
        self._home = os.path.join(root, only) if only else os.fspath(root)  # noqa: PTH118 - compared with sys.path
        self._extra: list[str] = []  # folders of the bundle that its code put on sys.path
        # A project's packages are imported from its src, as when it is installed.
        self._source = [os.fspath(root / "src")] if not only and has_source_folder(root) else []
        self._own: dict[str, bool] = {}  # entries of sys.path, and whether they are folders of the bundle
        self._beside: list[str] = []  # folders of files that were named: scripts find there what is nowhere else
        self._finders: dict[str, machinery.FileFinder] = {}
        self._foreign: set[str] = set()  # top-level names that were imported from outside, and stay so, as in Python
        self._views: dict[str, _View] = {}
        self.stopped: dict[str, KickedOff] = {}  # at a kickoff while they were imported: its modules, by name
        self.builtins = {**vars(builtins), "__import__": self.import_, "input": read_line}

    def owns(self, name: str) -> bool:
        """Whether a dotted name, said inside the bundle, means the bundle's own."""
        top = name.partition(".")[0]
        if top in self._foreign or top in _NEVER or _part_of_interpreter(top):
            return False
        if f"{self.name}.{top}" in sys.modules:
            return True
        spec = self.find(f"{self.name}.{top}", None)
        # A folder without __init__.py yields to a real module anywhere on the path, as in Python: docs/, yaml/, data/.
        return spec is not None and (spec.loader is not None or not _regular_elsewhere(top))

    def full(self, name: str) -> str:
        """The name under which ``sys.modules`` knows what ``name`` means inside the bundle."""
        return f"{self.name}.{name}" if self.owns(name) else name

    def find(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """The spec of a module of this bundle; ``path`` is its parent's, None for the top level."""
        if at_top := path is None:
            at_root = [os.fspath(self.root)] if self._only in (None, fullname.partition(".")[2]) else []
            path = [*self._source, *at_root, *self._extra, *self._on_sys_path()]
        folders: list[str] = []
        for folder in path:
            spec = self._finder(folder).find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
            folders += (spec and spec.submodule_search_locations) or ()
        if not folders and at_top and not _regular_elsewhere(fullname.partition(".")[2]):
            found = (self._finder(folder).find_spec(fullname) for folder in self._beside)
            if (spec := next(filter(None, found), None)) is not None:
                return spec
        return _package_spec(fullname, folders) if folders else self._json_crew(fullname)

    def modules(self) -> list[str]:
        """Return the names that ``sys.modules`` holds for this bundle."""
        if self.name not in sys.modules:  # their package, which comes first: a fork need not touch all names
            return []
        return [name for name in list(sys.modules) if name == self.name or name.startswith(f"{self.name}.")]

    def unexecuted(self, name: str) -> tuple[ModuleType, bool]:
        """A module of this bundle, and whether its code was run: a package around it, which is, may import it."""
        full = f"{self.name}.{name}"
        sys.modules.pop(full, None)
        importlib.import_module(full.rpartition(".")[0])
        if full in sys.modules:
            return sys.modules[full], True
        spec = importlib.util.find_spec(full)
        assert spec is not None
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = self.builtins
        return module, False

    def drop(self) -> None:
        """Forget all modules; objects that still use them keep working."""
        self.stopped.clear()
        for name in self.modules():
            sys.modules.pop(name, None)

    def keep_paths(self, before: Sequence[str]) -> None:
        """Take for the bundle alone what its code put on ``sys.path`` since ``before``, where all would see it."""
        for entry in self._on_sys_path():
            if entry not in before:
                self._extra.append(os.path.abspath(entry))  # noqa: PTH100 - links stay as they are
                with contextlib.suppress(ValueError):  # another thread was first
                    sys.path.remove(entry)

    def look_beside(self, module: str) -> None:
        """Where a file of a package is run as a script, Python finds what is beside it, as `import crew`."""
        parts = module.split(".")[:-1]
        self._beside += [os.fspath(Path(base, *parts)) for base in (*self._source, os.fspath(self.root)) if parts]

    def view(self, module: ModuleType) -> ModuleType:
        """Return the module as this bundle sees it."""
        name = module.__name__
        if name not in _BY_NAME:
            return module
        if name not in self._views:
            self._views[name] = _View(module, self)
        return self._views[name]

    def _json_crew(self, fullname: str) -> ModuleSpec | None:
        """A crew that is written as data, as a module."""
        if fullname != f"{self.name}.crew" or self._only:
            return None
        there = (self.root / name for name in JSON_CREWS)
        file = next((os.fspath(path) for path in there if path.is_file()), None)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=_JsonCrew(fullname, file, self))

    def _on_sys_path(self) -> list[str]:
        """Entries of ``sys.path`` that the bundle's code added, except for an environment in the project's folder."""
        inside = [entry for entry in sys.path if isinstance(entry, str) and entry.startswith(self._home)]
        return [entry for entry in inside if self._is_own(entry)]

    def _is_own(self, entry: str) -> bool:
        own = self._own.get(entry)
        if own is None:
            place = os.path.abspath(entry)  # noqa: PTH100 - links stay as they are
            inside = (place + os.sep).startswith(self._home + os.sep)
            own = self._own[entry] = inside and not is_installed(Path(place), Path(self._home))
        return own

    def _finder(self, folder: str) -> machinery.FileFinder:
        finder = self._finders.get(folder)
        if finder is None:
            details: list[tuple[Any, list[str]]] = [
                (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
                (lambda name, path: _Loader(name, path, self), machinery.SOURCE_SUFFIXES),
            ]
            finder = self._finders[folder] = machinery.FileFinder(folder, *details)
        return finder

    def import_(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for the code of the bundle, as its ``__import__``."""
        if not level and not self.owns(name):
            module = builtins.__import__(name, globals, locals, fromlist or (), 0)
            top = name.partition(".")[0]
            self._foreign.add(top)
            frameworks.imported(top)
            return self.view(module) if top in _BY_NAME else module
        spaces.setdefault(self.name, self)  # code that outlived its bundle's place in the cache still imports
        if level:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        full = f"{self.name}.{name}"
        try:
            module = builtins.__import__(full, globals, locals, fromlist or (), 0)
        except ModuleNotFoundError as error:
            # Code that asks ``error.name`` knows the name it imported, not where we keep it.
            if error.name and error.name.startswith(f"{self.name}."):
                error.name = error.name.removeprefix(f"{self.name}.")
                error.msg = error.msg.replace(f"{self.name}.", "")
                error.args = (error.msg,)
            raise
        return module if fromlist else sys.modules[f"{self.name}.{name.partition('.')[0]}"]


class _Loader(machinery.SourceFileLoader):
    """Runs a bundle's source file with the bundle's builtins."""

    def __init__(self, fullname: str, path: str, space: Namespace) -> None:
        super().__init__(fullname, path)
        self._space = space

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._space.builtins
        try:
            super().exec_module(module)
        except KickedOff as end:  # what comes after is looked at, and not done
            self._space.stopped[module.__name__] = end
            if end.crew is not None and all(value is not end.crew for value in vars(module).values()):
                module.__dict__["crew"] = end.crew

    def path_stats(self, path: Any) -> Mapping[str, Any]:  # noqa: ARG002 - the names of Python's protocol
        """No bytecode, neither read nor written: it is matched by time and size, and a bundle has no times."""
        raise OSError("bytecode is not kept for bundles")


class _JsonCrew(_Loader):
    """Runs, in the place of a file that is data, the code that makes a crew of it."""

    def get_data(self, path: str) -> bytes:  # noqa: ARG002 - importlib's name
        """Return the code that makes a crew of a file of JSON."""
        return frameworks.data_crew() or b"raise ImportError('no adapter for crews written as JSON is installed')"


class _View(ModuleType):
    """A module of the standard library as one bundle sees it: names in strings mean the bundle's own first."""

    def __init__(self, real: ModuleType, space: Namespace) -> None:
        super().__init__(real.__name__, real.__doc__)
        own = {name: value for name, value in vars(real).items() if name.startswith("__")}
        own |= {name: _by_name(vars(real)[name], space) for name in _BY_NAME[real.__name__] if name in vars(real)}
        if real is importlib:
            own["__import__"] = space.import_
        self.__dict__.update(own, _real=real, _space=space)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_real"], name)
        return self.__dict__["_space"].view(value) if isinstance(value, ModuleType) else value

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_real"])


class _NamespacePath(list[str]):
    """Search locations of a folder without ``__init__.py``; importlib.resources knows one by its repr."""

    def __repr__(self) -> str:
        return f"NamespacePath({super().__repr__()})"


spaces: dict[str, Namespace] = {}
"""The namespaces of the bundles in use, by name."""


class _Finder(MetaPathFinder):
    """Finds the modules of every bundle in use, and no others."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG002 - the names of Python's protocol
    ) -> ModuleSpec | None:
        name, _, inside = fullname.partition(".")
        space = spaces.get(name)
        if space is None:
            return None
        if not inside:
            return _package_spec(name, [os.fspath(space.root)])
        return space.find(fullname, path if "." in inside else None)


def add(space: Namespace) -> None:
    """Have the modules of a bundle found."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    spaces[space.name] = space


typed: list[Callable[[str], str | None]] = []
"""Gives what a person answers to this prompt where a task is being done; None elsewhere. An adapter puts it here."""


def values_beside(module: ModuleType) -> list[object]:
    """What the imported modules of a module's bundle hold, its own among them."""
    bundle = module.__name__.partition(".")[0]
    modules = [one for name, one in list(sys.modules.items()) if f"{name}.".startswith(f"{bundle}.")]
    return [value for one in modules for value in list(vars(one).values())]


def read_line(prompt: object = "", /) -> str:
    """``input`` for the code of bundles: a task asks a person, as a worker has no terminal. Not while it is read."""
    if being_read() is not None:
        raise BadCrew(
            "input() needs a terminal, which a worker does not have: make it an input of the kickoff, for --input "
            "NAME=VALUE, or name a function that creates the crew without asking, as in main.py:make"
        )
    answer = next((text for one in typed if (text := one(str(prompt))) is not None), None)
    return builtins.input(prompt) if answer is None else answer


def _package_spec(name: str, folders: Sequence[str]) -> ModuleSpec:
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = _NamespacePath(folders)
    return spec


def _by_name(function: Callable[..., Any], space: Namespace) -> Callable[..., Any]:
    """The function with the module's name, its first argument (for a relative one, the second), made ours."""

    def ours(value: Any) -> Any:
        if not isinstance(value, str) or value.startswith("."):
            return value
        name, colon, rest = value.partition(":")
        return space.full(name) + colon + rest

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # this name: importlib.resources skips it when it looks for a caller
        relative = bool(args) and str(args[0]).startswith(".")
        args = tuple(ours(a) if place == relative else a for place, a in enumerate(args))
        kwargs |= {key: ours(kwargs[key]) for key in ("name", "package", "anchor") if key in kwargs}
        return function(*args, **kwargs)

    return wrapper


@lru_cache(maxsize=4096)
def _part_of_interpreter(name: str) -> bool:
    """Built in or frozen: found before any file in any folder."""
    return name in sys.builtin_module_names or machinery.FrozenImporter.find_spec(name) is not None


def _regular_elsewhere(name: str) -> bool:
    """A real module of that name; what lies in the folder this process happens to run in does not count."""
    try:
        if name in sys.modules:
            origin = getattr(sys.modules[name], "__file__", None)
        else:
            spec = importlib.util.find_spec(name)
            origin = spec and spec.origin
        if origin is None:
            return False
        file = Path(origin)
        return (file.parent.parent if file.stem == "__init__" else file.parent) != Path.cwd()
    except (ImportError, ValueError, AttributeError, OSError):
        return False


_finder = _Finder()
