"""Imports a crew file and finds the crew in it. Errors are reported in one line.

Each bundle has its own namespace, by its sha256 or ``key_of`` a folder. The newest ``KEPT``, and used ones, stay.
"""

import asyncio
import difflib
import hashlib
import importlib
import inspect
import io
import itertools
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType

from pydantic import ValidationError

from runner.bundles import frameworks, isolation, script
from runner.bundles.after_kickoff import is_whole
from runner.bundles.arguments import NotGiven, arguments, called
from runner.bundles.frameworks import kind_in_words, not_a_crew, what_else
from runner.bundles.isolation import PREFIX, Namespace, spaces
from runner.bundles.program import CALL, Program
from runner.bundles.project import source_of
from runner.bundles.reading import KickedOff, reading
from runner.bundles.target import Target
from runner.core.annotations import signature_of
from runner.core.errors import BadCrew, MissingDependency, RunnerError, Stop, one_line
from runner.core.field_errors import format_field_errors

KEPT = 32  # bundles that stay imported in one process

METHODS = ("run", "kickoff", "crew")  # what is called of an object of a class that is named alone

_users: dict[str, set[int]] = {}
_clock = itertools.count()
_lock = threading.RLock()  # over _users and the finder's list, never held during an import


class ModuleMissing(MissingDependency):
    """A module that the crew imports is neither in the bundle nor installed here."""

    def __init__(self, message: str, module: str) -> None:
        super().__init__(message)
        self.module = module


def key_of(folder: Path) -> str:
    """The key for a folder on this machine that was not unpacked from a bundle."""
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


def load(root: Path, module: str, *, key: str, only: str | None = None, live: bool = False) -> ModuleType:
    """The module of that dotted name in ``root``, imported once per key.

    ``only`` names the one package in ``root`` that belongs to the crew, where ``root`` holds more than that. What it
    kicks off when it is imported is kicked off only if it is ``live``: else it is read.
    """
    with using(key):
        space = space_for(key, root, only)
        with space.lock:
            was_loaded = any(sys.modules.get(name) for name in space.modules() if name != space.name)
            before = list(sys.path)
            space.look_beside(module)
            try:
                with nullcontext() if live else reading():
                    return importlib.import_module(f"{space.name}.{module}")
            except (KeyboardInterrupt, Stop):
                raise
            except BaseException as error:
                if not was_loaded:
                    space.drop()  # what it imported before it failed goes too
                raise explain(error, root, f"{_file_of(root, module)}: ") from error
            finally:
                space.keep_paths(before)


def _file_of(root: Path, module: str) -> str:
    """The file of a module in ``root``; of a package, its folder."""
    name = module.replace(".", "/")
    return f"{name}.py" if (root / f"{name}.py").is_file() else name


def load_target(target: Target) -> ModuleType:
    """The crew file on this machine, seeing what its bundle will hold and no more of its surroundings."""
    only = target.include.name if target.include != target.root else None
    return load(target.root, target.module, key=key_of(target.include), only=only)


class using:
    """While this is open, the bundle's modules stay. Open it around a load and all that runs its code.

    A stop may come between the last line of the block and the call that closes it: then it closes as it goes.
    """

    __slots__ = ("_name",)

    def __init__(self, key: str) -> None:
        self._name = namespace_of(key)

    def __enter__(self) -> None:
        with _lock:
            _users.setdefault(self._name, set()).add(id(self))
            if space := spaces.get(self._name):
                space.last_used = next(_clock)

    def __exit__(self, *_: object) -> None:
        with _lock:
            (users := _users.get(self._name, set())).discard(id(self))
            if not users:
                _users.pop(self._name, None)
            del self._name

    def __del__(self) -> None:
        if hasattr(self, "_name"):
            self.__exit__()


def in_use(key: str) -> bool:
    """Whether `using` is open for a bundle."""
    with _lock:
        return namespace_of(key) in _users


def files_of(key: str) -> list[Path]:
    """Return the files of a bundle that were imported."""
    space = spaces.get(namespace_of(key))
    found = [getattr(sys.modules.get(name), "__file__", None) for name in (space.modules() if space else [])]
    return [Path(file) for file in found if file]


def unload(key: str, *, used: bool = False) -> bool:
    """Drop a bundle's modules; False if it is not loaded, or in use.

    In use nothing is done, unless ``used`` says that those who use it need no more of it than they have.
    """
    return _unload(namespace_of(key), used=used)


def explain(error: BaseException, root: Path, place: str = "") -> RunnerError:
    """Return why a crew's code could not be imported, at run time too, in one line that begins with the place."""
    if isinstance(error, RunnerError) and type(error) is not BadCrew:
        return error
    text = plain_names(one_line(error))
    frame, line = last_frame(error)
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        place, text = f"{_relative(error.filename, root)}:{error.lineno}: ", plain_names(error.msg)
    elif frame:
        place = f"{_relative(frame.f_code.co_filename, root)}:{line}: "
    if isinstance(error, BadCrew):
        return BadCrew(f"{place}{text}")
    if isinstance(error, ValidationError):
        model = frame.f_globals.get(error.title) if frame is not None else None
        return BadCrew(
            f"{place}{' '.join(plain_names(format_field_errors(error)).split())}{frameworks.whose_error(model)}"
        )
    missing: BaseException | None = error
    if type(error) is ImportError and error.name is None:  # raised by hand, as a kinder word for the first one
        missing = error.__cause__ or error.__context__
    if isinstance(missing, ModuleNotFoundError) and missing.name:
        name = plain_names(missing.name)
        if name.partition(".")[0] == "runner":
            return BadCrew(f"{place}no module named {name!r} ('runner' always means this product)")
        if name != missing.name or _holds(root, name):
            return BadCrew(f"{place}no module named {name!r} in the folder of the file")
        source = linecache.getline(frame.f_code.co_filename, line) if frame else ""
        more = f" ({text})" if missing is not error else frameworks.install(name, source)
        return ModuleMissing(f"{place}no module named {name!r}{more}", name)
    if isinstance(error, SystemExit):
        return BadCrew(f"{place}the file exits the process when it is imported (exit {error.code or 0})")
    if isinstance(error, KeyboardInterrupt):
        return BadCrew(f"{place}the file raises KeyboardInterrupt when it is imported")
    text = text if len(text) <= 500 else f"{text[:500]} ..."
    return BadCrew(f"{place}{type(error).__name__}{': ' if text else ''}{text}")


def plain_names(text: str) -> str:
    """The text with modules called as the crew's own code calls them."""
    return re.sub(rf"\b{PREFIX}[0-9a-f]{{16}}\.", "", text)


def find_crew(
    module: ModuleType,
    attr: str | None,
    is_crew: Callable[[object], bool],
    chosen: Callable[[list[tuple[str, object]]], list[tuple[str, object]]] = lambda crews: crews,
    factories: Callable[[ModuleType], list[str]] = lambda module: [],  # noqa: ARG005 - what is called by this name
) -> tuple[str, object]:
    """The crew in a loaded module and its name: the named one, or the only one there is that counts.

    Where there is none, ``factories`` names what would make one if it was called.
    """
    if attr is None and script.NAME in vars(module):
        attr = script.NAME  # what it made stands among the module's names by now
    if attr is not None:
        return _named(attr, _named_crew(module, attr, is_crew))
    made, entries = factories(module), frameworks.entries()
    entry = next((name for name in made if name in entries), None)
    if entered := next((name for name in made if name.endswith(CALL)), ""):
        return entered, called(entered, getattr(module, entered.removesuffix(CALL), None))
    if _does_more(module):
        name = entry if entry and not script.has_block(module) else script.NAME
        return _named(name, Program(name))
    if entry and isinstance(program := _tried(module, entry, is_crew), Program):
        return _named(entry, program)
    crews: dict[int, tuple[str, object]] = {}
    # Public names first, so that they name what also has a private one; private crews count if they are all there is.
    for name, value in sorted(vars(module).items(), key=lambda item: item[0].startswith("_")):
        if is_crew(value) and (not name.startswith("_") or not any(not n.startswith("_") for n, _ in crews.values())):
            crews.setdefault(id(value), (name, value))
    file = _file(module)
    left = chosen(list(crews.values()))
    left = [] if made and all(frameworks.is_agent(crew) for _, crew in left) else left
    if len(left) > 1:
        names = ", ".join(name for name, _ in left)
        word = frameworks.word_of([crew for _, crew in left])
        all_of = (
            f", or what kicks them off: {file}:{script.NAME}" if script.kicks_off(Path(module.__file__ or "")) else ""
        )
        raise BadCrew(f"{file} has {len(left)} {word}s: {names}; name one, as in {file}:{left[0][0]}{all_of}")
    # A main.py that imports a class of crews has a function that kicks it off, with the inputs it is to get.
    is_own = any(not inspect.isclass(crew) or crew.__module__ == module.__name__ for _, crew in left)
    made = [] if is_own else [entry] if entry else [] if left else made
    if made:
        return _made(module, made, is_crew)
    if not left:
        values = vars(module).values()
        is_agent, word = frameworks.word_of(values) == "agent", frameworks.words_of(values)
        write = "agent = Agent(...) at its top level" if is_agent else "crew = Crew(...)"
        call = f"runs it{script.example_call(Path(module.__file__ or file))}" if is_agent else "returns one"
        name = f"name {file}:{Program(script.NAME).attr} to run it as a script, or " if script.is_script(module) else ""
        raise BadCrew(
            f"{file}: no {word} in it; {what_else(module, is_crew)}: {name}write {write} in it, "
            f"or a function without arguments that {call}"
        )
    return left[0]


def _made(module: ModuleType, made: list[str], is_crew: Callable[[object], bool]) -> tuple[str, object]:
    """What the only one of these comes to; where it lacks inputs, what the file does as a script without any."""
    names, file = [name for name in made if name != script.NAME] or made, _file(module)
    try:
        if len(names) == 1:
            return _named(names[0], _named_crew(module, names[0], is_crew))
        many = f"{len(names)} places: {', '.join(names)}"
        raise NotGiven(f"{file} makes a crew in {many}; name one, as in {file}:{names[0]}")
    except NotGiven:
        with redirect_stderr(io.StringIO()):  # how it is to be called, as a parser of arguments says it
            if len(names) == len(made) or (crew := _tried(module, script.NAME, is_crew)) is None:
                raise
        return _named(script.NAME, crew)


def _tried(module: ModuleType, entry: str, is_crew: Callable[[object], bool]) -> object:
    """What a project's entry point comes to; None if it cannot be called here."""
    try:
        return _named_crew(module, entry, is_crew)
    except BadCrew:
        return None


def _named(attr: str, crew: object) -> tuple[str, object]:
    """With the name under which a worker finds it."""
    return (crew.attr if isinstance(crew, Program) else attr), crew


def _does_more(module: ModuleType) -> bool:
    """Whether the file, or what it imports, kicks something off when it is imported that is not all it does."""
    space = spaces.get(module.__name__.partition(".")[0])
    stopped = space.stopped if space is not None else {}
    return any(name != module.__name__ or not _is_all(end) for name, end in stopped.items())


def _is_all(end: KickedOff) -> bool:
    return end.crew is not None and is_whole(end)


def _named_crew(module: ModuleType, attr: str, is_crew: Callable[[object], bool]) -> object:
    file = _file(module)
    if attr == Program(script.NAME).attr:
        return Program(script.NAME)
    attr, is_program = attr.removesuffix(CALL), attr.endswith(CALL)
    value: object = module
    walked: list[str] = []
    if attr == script.NAME and attr not in vars(module) and script.has_block(module):
        crew = _call(lambda: script.run(module), file, module, attr)
        if not is_crew(crew):
            raise BadCrew(f"{file}: the code under if __name__ == {attr!r} kicks off no crew")
        vars(module)[attr] = crew
    for name in attr.split("."):
        if inspect.isclass(value) and not isinstance(
            inspect.getattr_static(value, name, None), (staticmethod, classmethod)
        ):
            value = _call(value, f"{file}:{'.'.join(walked)}", module, attr)  # a method wants an instance
        if not hasattr(value, name):
            owner = f"{file}:{'.'.join(walked)}" if walked else file
            near = difflib.get_close_matches(name, [n for n in dir(value) if not n.startswith("__")], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; {what_else(module, is_crew)}" if not walked else ""
            raise BadCrew(f"{owner} has no {name!r}{hint}")
        value = getattr(value, name)
        walked.append(name)
    if is_program:
        return called(attr, value)
    if not is_crew(value) and callable(value):
        function, is_class = value, inspect.isclass(value)
        if not is_class and _makes_no_crew(module, value):
            return called(attr, value)
        value = _call(value, f"{file}:{attr}", module, attr)
        method = next((name for name in METHODS if is_class and hasattr(value, name)), None)
        if method and not is_crew(value):
            value = getattr(value, method)
            value = value if is_crew(value) else _call(value, f"{file}:{attr}.{method}", module, attr)
        if not is_crew(value):
            if not is_class and not frameworks.makes(isolation.values_beside(module)):
                return called(attr, function)
            hint = "" if is_class else f"; to run it as a function, name {file}:{Program(attr).attr}"
            raise BadCrew(f"{file}:{attr} returned {kind_in_words(value)}, {not_a_crew(module)}{hint}")
    if not is_crew(value):
        crews = [name for name, one in vars(module).items() if is_crew(one) and not name.startswith("_")]
        there = f"; {file} has {', '.join(crews[:6])}" if crews else ""
        raise BadCrew(f"{file}:{attr} is {kind_in_words(value)}, {not_a_crew(module)}{there}")
    return value


def _makes_no_crew(module: ModuleType, value: object) -> bool:
    """Whether nothing that a function uses could make a crew, so that it need not be called to see what it returns."""
    plain = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type]  # what is no function is returned
    values = isolation.values_beside(module)
    if not inspect.isfunction(plain) or frameworks.makes(values):
        return False
    used = {name.partition(".")[0] for name in frameworks.modules_of(values)} - sys.stdlib_module_names
    is_ours = any(inspect.ismodule(one) and f"{one.__name__}.".startswith("runner.") for one in values)
    if is_ours or frameworks.may_come_from(used - {"runner", module.__name__.partition(".")[0]}):
        return False
    imported = script.imports_used(plain.__code__, plain.__globals__)
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in imported)


def _call(function: object, label: str, module: ModuleType, attr: str) -> object:
    """What it gives, or the crew or flow that it kicks off. Where it does more than that, it is a program."""
    assert callable(function)
    given = arguments(function, label)
    try:
        signature_of(function).bind(**given)
    except TypeError as error:
        raise BadCrew(f"{label} cannot be called without arguments ({error})") from error
    except ValueError:
        pass  # a builtin that does not tell its signature
    with reading() as read:
        try:
            value = function(**given)
            if inspect.iscoroutine(value):  # for its kickoff; a crew that it returns is none
                asyncio.run(value)
        except KickedOff as end:
            return end.crew if len(read.came_to) == 1 and _is_all(end) else called(attr, function)
        except (KeyboardInterrupt, Stop):
            raise
        except BaseException as error:
            if read.came_to:  # it continues without the result of the kickoff
                return called(attr, function)
            space = spaces.get(module.__name__.partition(".")[0])
            raise explain(error, space.root if space else Path(module.__file__ or ".").parent, f"{label}: ") from error
    return called(attr, function) if read.came_to else value


def space_for(key: str, root: Path, only: str | None = None) -> Namespace:
    """The namespace of a bundle, made if there is none."""
    with _lock:
        # Never taken out and put back: other threads look their imports up in there without the lock.
        space = spaces.get(namespace_of(key)) or Namespace(namespace_of(key), root.resolve(), only)
        space.last_used = next(_clock)
        isolation.add(space)
        oldest_first = sorted(spaces.values(), key=lambda space: space.last_used)
        for space_to_go in oldest_first[: max(0, len(spaces) - KEPT)]:
            _unload(space_to_go.name)
        return space


def _unload(name: str, *, used: bool = False) -> bool:
    with _lock:
        if (name in _users and not used) or name not in spaces:
            return False
        spaces.pop(name).drop()
        if (bus := sys.modules.get("runner.events.bus")) is not None:
            bus.event_bus.drop(name)  # handlers that it registered
        if (hooks := sys.modules.get("runner.hooks.registry")) is not None:
            hooks.drop(name)
        return True


@lru_cache(maxsize=256)
def namespace_of(key: str) -> str:
    """The name of the package under which a bundle's modules stand."""
    is_hash = re.fullmatch(r"[0-9a-f]{16,}", key)
    return PREFIX + (key if is_hash else hashlib.sha256(key.encode()).hexdigest())[:16]


def last_frame(error: BaseException) -> tuple[FrameType | None, int]:
    """The deepest frame of the error that is the crew's own code."""
    found: tuple[FrameType | None, int] = (None, 0)
    for frame, line in walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).startswith(PREFIX):
            found = (frame, line)
    return found


def _relative(filename: str, root: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) else filename


def _holds(root: Path, name: str) -> bool:
    top, dot, _ = name.partition(".")
    for base in {root, source_of(root)}:
        folder = base / top
        if (base / f"{top}.py").is_file() or (folder / "__init__.py").is_file() or (bool(dot) and folder.is_dir()):
            return True
    return False


def _file(module: ModuleType) -> str:
    return Path(module.__file__).name if module.__file__ else plain_names(module.__name__)
