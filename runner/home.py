"""What a run keeps on a machine beside the store: a home folder of its own, and what its crew remembers.

There is one folder for each branch of a run. A fork begins with a copy of what its parent's holds when the fork's first
task comes to that machine, and goes on for itself. The folders stay for as long as the run is in the store.
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

HOME, STORAGE = "home", "storage"
UNUSED = 3600.0  #: seconds that a folder was not used before anybody asks whether its run is still there


def homes(url: str, cache: Path) -> Path:
    """Where the folders of a store's runs are: in ``RUNNER_SHARED_DIR``, which all machines of a fleet see, or here."""
    shared = os.environ.get("RUNNER_SHARED_DIR")
    if shared:
        return Path(shared) / "runs"
    return cache / "runs" / hashlib.sha256(url.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one branch of a run.

    ``parent`` gives the branch that a branch left, "" for none; ``known`` which of these runs the store has.
    """

    homes: Path
    run_id: str
    branch: str
    parent: Callable[[str], str]
    known: Callable[[list[str]], Collection[str]]

    def made(self) -> Path:
        """The folder, made if it is not there."""
        path = self._path(self.branch)
        if not path.is_dir():
            if not path.parent.is_dir():
                sweep(self.homes, self.known)
            self._make(path)
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


def sweep(homes: Path, known: Callable[[list[str]], Collection[str]]) -> None:
    """Remove the folders of runs that the store has no longer; ``known`` tells which of these it has."""
    now = time.time()
    old = []
    with contextlib.suppress(OSError):
        old = [path for path in homes.iterdir() if now - path.stat().st_mtime > UNUSED]
    if not old:
        return
    there = known([path.name for path in old])
    for path in old:
        if path.name not in there:
            shutil.rmtree(path, ignore_errors=True)


def show_through(real: Path, own: Path, apart: Iterable[str]) -> None:
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
                show_through(entry, place, ["/".join(part) for part in inside])
            elif not os.path.lexists(place):
                with contextlib.suppress(FileExistsError):
                    place.symlink_to(entry)
