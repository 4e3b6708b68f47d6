"""The working directory of processes that do tasks of many runs: an empty folder, so that relative paths lead nowhere.

They would lead somewhere else on each machine, and where a crew is only tried they would lead to the right place.
"""

import os
import shutil
from pathlib import Path

ADVICE = (
    "relative paths lead nowhere on a worker: ctx.path('data/x.csv') is a file beside the crew, ctx.workdir a folder "
    "whose files are kept; in a flow's method, self.path and self.workdir"
)

_here: list[Path] = []


def enter(cache: Path) -> None:
    """Have this process be nowhere, for good."""
    folder = cache.absolute() / "nowhere" / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o500)
    os.chdir(folder)
    _here[:] = [folder]


def leave() -> None:
    """It was elsewhere for a while."""
    if _here:
        os.chdir(_here[0])


def strays() -> list[str]:
    """What somebody wrote here by a relative path, though it is not allowed: root may. It is removed."""
    if not _here or not (found := os.listdir(_here[0])):  # noqa: PTH208 - for each task, and in nearly all nothing
        return []
    for name in found:
        path = _here[0] / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return sorted(found)


def is_led_astray(error: BaseException | None) -> bool:
    """Whether an error comes of a relative path, in a process that is nowhere."""
    if not _here or not isinstance(error, OSError) or not isinstance(error.filename, str | bytes):
        return False
    try:
        return not Path(os.fsdecode(error.filename)).is_absolute() and Path.cwd() == _here[0]
    except OSError:
        return False
