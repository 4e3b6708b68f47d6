"""The folders that a run keeps on a machine, one for each branch: its home folder, and what its crew remembers.

A fork's begins as a copy of its parent's when its first task comes there. They stay as long as the run.
"""

import contextlib
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.core.errors import needed_on_disk

HOME, STORAGE = "home", "storage"
UNUSED = 3600.0  #: seconds that a folder was not used before anybody asks whether its run is still there
OF_OTHERS = 60 * 24 * 3600.0  #: and before it is taken away if it is a run's of which only another store knows
_STORE = ".store"  #: in the folder of a run, whose it is


def homes(store: str, cache: Path) -> Path:
    """Where the folders of a store's runs are: in ``RUNNER_SHARED_DIR``, which all machines of a fleet see, or here.

    ``store`` says which one, without a password: a new password leads to the same folders.
    """
    shared = os.environ.get("RUNNER_SHARED_DIR")
    if shared:
        return Path(shared) / "runs"
    return cache / "runs" / hashlib.sha256(store.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one branch of a run of ``store``.

    ``parent`` gives the branch that a branch left, "" for none; ``known`` which of these runs the store has.
    """

    homes: Path
    store: str
    run_id: str
    branch: str
    parent: Callable[[str], str]
    known: Callable[[list[str]], Collection[str]]

    def made(self) -> Path:
        """Return the folder, which is made if it does not exist."""
        path = self._path(self.branch)
        if not path.is_dir():
            if not path.parent.is_dir():
                sweep(self.homes, self.store, self.known)
            with needed_on_disk():
                self._make(path)
                (path.parent / _STORE).write_text(self.store)
        with contextlib.suppress(OSError):
            os.utime(path.parent)
        return path

    def _make(self, path: Path) -> None:
        new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        new.mkdir(parents=True, mode=0o700)
        try:
            if (before := self._before()) is not None:
                shutil.copytree(before, new, symlinks=True, dirs_exist_ok=True)
            for name in (HOME, STORAGE):
                (new / name).mkdir(exist_ok=True)
            new.rename(path)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            if not path.is_dir():  # else another task of the branch was first
                raise

    def _before(self) -> Path | None:
        """The folder of the nearest branch before this one that has one here."""
        name = self.branch
        while name := self.parent(name):
            if (path := self._path(name)).is_dir():
                return path
        return None

    def _path(self, branch: str) -> Path:
        name = branch if branch == "main" else hashlib.sha256(branch.encode()).hexdigest()[:16]
        return self.homes / self.run_id / name


def sweep(homes: Path, store: str, known: Callable[[list[str]], Collection[str]]) -> None:
    """Remove folders of runs that are not ``known`` to the store, and those of other stores once long unused."""
    own = [path for path in _unused(homes, UNUSED) if _store_of(path) == store]
    there = known([path.name for path in own]) if own else ()
    gone = [path for path in own if path.name not in there]
    for place in (homes, *homes.parent.glob("[0-9a-f]" * 12)):
        gone += [path for path in _unused(place, OF_OTHERS) if _store_of(path) != store]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)


def _unused(place: Path, seconds: float) -> list[Path]:
    """The folders in a place that were unused for that long."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for path in place.iterdir():
            with contextlib.suppress(OSError):
                if path.name.startswith("r-") and time.time() - path.stat().st_mtime > seconds:
                    found.append(path)
    return found


def _store_of(run: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return (run / _STORE).read_text()
    return ""


def overlay(real: Path, own: Path, apart: Iterable[str]) -> None:
    """Let all that is in the ``real`` home be found in a run's ``own``, but for what is to be kept apart."""
    parts = [Path(name).parts for name in apart]
    with contextlib.suppress(OSError):
        for entry in real.iterdir():
            inside = [part[1:] for part in parts if part[0] == entry.name]
            if () in inside:
                continue
            place = own / entry.name
            if inside and entry.is_dir():
                place.mkdir(exist_ok=True)
                overlay(entry, place, ["/".join(part) for part in inside])
            elif not os.path.lexists(place):
                with contextlib.suppress(FileExistsError):
                    place.symlink_to(entry)
