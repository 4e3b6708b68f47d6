"""Refuses relative paths in crews whose tasks share a process, where the working directory is an empty folder.

A relative path would lead somewhere else on each machine, and to the right place where a crew is only tried. An empty
folder answers many calls without an error, so the functions of ``builtins``, ``os`` and ``sqlite3`` that take a path
are wrapped; those of the standard library that are made of them refuse as well. Absolute paths, open files and
``dir_fd`` pass, and so do calls that no crew's code makes. An audit hook would not do: it gets no ``stat``, sees no
``dir_fd``, and is called for much else.

A third-party library that looks for files of its own (``.env``, ``matplotlibrc``) may not list or change the working
directory; opening fails as in any empty folder, and what it writes there is noticed.
"""

import builtins
import contextlib
import fcntl
import glob
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path, PurePath
from types import FrameType, MethodType
from typing import Any

from runner.bundles.isolation import PREFIX
from runner.core.context_value import ContextValue
from runner.core.errors import RelativePath
from runner.core.file_locks import unheld

ADVICE = (
    "relative paths do not work on a worker: ctx.path('data/x.csv') is a file beside the crew, ctx.workdir a folder "
    "whose files are kept; in a flow's method, self.path and self.workdir"
)

FRESH = 60.0  #: seconds that who made a folder may take to lock it

_here: list[str] = []  #: as text: a path is asked for it twice for each task

_chdir, _listdir, _stat = os.chdir, os.listdir, os.stat  #: as they are before `install`: they are called for each task

SETTLED = 2.0  #: seconds after a change in a folder; until then another one may have the same time
_empty: dict[str, int] = {}  #: where nothing was when that was last changed, and when, in ns


def enter(cache: Path) -> None:
    """Have this process be nowhere, for good: in a folder of its own, which has a lock until the process is gone.

    Its name is unique: containers that share a cache have processes of the same number.
    """
    nowhere = _folders(cache)
    nowhere.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=nowhere))
    folder.chmod(0o500)
    with contextlib.suppress(OSError):  # a file system without locks: nothing is swept there
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)
    os.chdir(folder)
    _here[:] = [str(folder)]


def sweep(cache: Path) -> None:
    """Take away the folders of processes that are gone."""
    with contextlib.suppress(OSError):
        for folder in _folders(cache).iterdir():
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > FRESH:
                    with unheld(folder, os.O_DIRECTORY):
                        shutil.rmtree(folder, ignore_errors=True)


def leave() -> None:
    """Return to this process's own directory, after it was elsewhere for a while."""
    if _here:
        _chdir(_here[0])


def is_here() -> bool:
    """Whether this process is nowhere just now."""
    try:
        return bool(_here) and Path.cwd().samefile(_here[0])
    except OSError:
        return False


def stray_files() -> list[str]:
    """What was written here by a relative path although that is not permitted: root can. It is removed.

    A folder in which something is made has another time: to look at that costs a third of what it costs to list it.
    """
    if not _here or _empty.get(_here[0]) == (changed := _stat(_here[0]).st_mtime_ns):
        return []
    if not (found := _listdir(_here[0])):
        if time.time() - changed / 1e9 > SETTLED:
            _empty[_here[0]] = changed
        return []
    for name in found:
        path = Path(_here[0], name)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return sorted(found)


def is_led_astray(error: BaseException | None) -> bool:
    """Whether an error comes of a relative path, in a process that is nowhere."""
    if not _here or not isinstance(error, OSError) or not isinstance(error.filename, str | bytes):
        return False
    try:
        return not Path(os.fsdecode(error.filename)).is_absolute() and Path.cwd() == Path(_here[0])
    except OSError:
        return False


def _folders(cache: Path) -> Path:
    return cache.absolute() / "nowhere"


_ONE = (
    *("open", "stat", "lstat", "access", "listdir", "scandir", "mkdir", "rmdir", "remove", "unlink", "readlink"),
    *("chmod", "chown", "utime", "truncate", "mkfifo", "statvfs", "chdir"),
)
_TWO = ("rename", "replace", "link")
_CWD = ("getcwd", "getcwdb")
_OF_LIBRARIES = frozenset({"listdir", "scandir", "chdir"})  #: what is refused to others' code that a crew calls, too
_SUPPORT = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")
#: modules that look for files for reasons of their own: what a frame's code is, where there is room
_LOOKING = frozenset(
    {"importlib", "inspect", "linecache", "multiprocessing", "pkgutil", "tempfile", "tokenize", "traceback", "warnings"}
)

_refused: ContextVar[list[str] | None] = ContextVar("runner_relative_paths", default=None)


def refuse() -> list[str]:
    """From here on relative paths are refused to the crew's code in this context.

    Returns the list of what was refused, as it grows: the code may swallow the error.
    """
    found: list[str] = []
    _refused.set(found)
    return found


def allowed() -> ContextValue[list[str] | None]:
    """While this is open they are not refused here: the working directory is the crew's own."""
    return ContextValue(_refused, None)


def install() -> Callable[[], None]:
    """Wrap the functions, once in a process. Returns what undoes it."""
    import _sqlite3  # before sqlite3 itself, which takes its connect from there

    undo: list[Callable[[], None]] = []

    def put(place: Any, name: str, function: Callable[..., Any]) -> None:
        before = getattr(place, name)
        if not isinstance(before, MethodType):
            # A method stays what it is where a class has it as an attribute, as a builtin function does.
            setattr(place, name, MethodType(function, before))
            undo.append(lambda: setattr(place, name, before))

    for name in (*_ONE, *_TWO, *_CWD, "symlink"):
        before = getattr(os, name)
        put(os, name, _two if name in _TWO else _cwd if name in _CWD else _last if name == "symlink" else _one)
        for support in (getattr(os, name) for name in _SUPPORT):
            if before in support:
                support.add(getattr(os, name))
    globber: Any = getattr(glob, "_StringGlobber", None)  # of `Path.glob` in Python 3.13: it took its own before
    if globber is not None and globber.scandir is os.scandir.__self__:  # type: ignore[attr-defined]  # a builtin function, of its module
        undo.append(partial(setattr, globber, "scandir", staticmethod(globber.scandir)))
        globber.scandir = staticmethod(os.scandir)
    put(builtins, "open", _one)
    put(io, "open", _one)
    for module in (_sqlite3, sys.modules.get("sqlite3"), sys.modules.get("sqlite3.dbapi2")):
        if module is not None:
            put(module, "connect", _database)

    def undone() -> None:
        for one in undo:
            one()

    return undone


def _one(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("path", kwargs.get("file", "."))
    if type(path) is not str or path[:1] != "/" or original.__name__ == "chdir":
        _look(original.__name__, path, kwargs)
    return original(*args, **kwargs)


def _two(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    for path in (*args[:2], *(kwargs[name] for name in ("src", "dst") if name in kwargs)):
        _look(original.__name__, path, kwargs)
    return original(*args, **kwargs)


def _last(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _look(original.__name__, args[1] if len(args) > 1 else kwargs.get("dst", "/"), kwargs)
    return original(*args, **kwargs)


def _cwd(original: Callable[..., Any]) -> Any:
    _look("getcwd", ".", {})
    return original()


def _database(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("database", "/")
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else "/"
    if kwargs.get("uri") and name.startswith("file:"):
        name = name.removeprefix("file:").partition("?")[0]
    if not name.startswith(":memory:"):
        _look("connect", name, {})
    return original(*args, **kwargs)


def _look(name: str, path: Any, kwargs: dict[str, Any]) -> None:
    """Raise `RelativePath` where a crew asks for one that leads nowhere."""
    if not isinstance(path, str | bytes | os.PathLike) or any(
        kwargs.get(one) is not None for one in ("dir_fd", "src_dir_fd", "dst_dir_fd")
    ):
        return
    text = os.fsdecode(path)
    if not text or (text.startswith("/") and name != "chdir"):
        return
    noted = _refused.get()
    found = _asked_by(sys._getframe(2), name in _OF_LIBRARIES)
    if found is None or (noted is None and not is_here()):  # a bare thread has no context of its task
        return
    frame, line = found
    place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
    what = "the working directory" if name in ("getcwd", "chdir") else f"the relative path {text[:200]!r}"
    error = RelativePath(f"{what} ({place}): {ADVICE}")
    if noted is not None:
        noted.append(str(error))
    raise error


def _asked_by(frame: FrameType | None, of_libraries: bool) -> tuple[FrameType, int] | None:
    """The crew's frame that asks, directly or through the standard library; through any, if ``of_libraries``."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(PREFIX):
            return frame, frame.f_lineno
        top = name.partition(".")[0]
        if top == "runner" or top in _LOOKING or not (of_libraries or top in sys.stdlib_module_names):
            return None
        frame = frame.f_back
    return None
