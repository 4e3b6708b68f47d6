"""Writes and removes files strictly below a folder, under names that come from the store."""

import contextlib
import os
import posixpath
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from runner.core.errors import LeadsOutside

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_below(folder: Path, name: str, data: bytes, *, executable: bool = False) -> Path:
    """Write a file below ``folder`` under a relative ``name``; create folders on the way. Returns its path.

    An absolute name is taken relative to the folder. The file appears under its name when it is complete, and replaces
    an existing one. Each folder on the way is opened from the one above without following links, so a link that is
    created meanwhile has no effect either.

    Raises `LeadsOutside` for a name that leads out of the folder, or if it or a folder on its way is a link, and
    OSError if it cannot be written.
    """
    parts = _parts(name)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_opened(os.open(folder, _FOLDER)))
        for depth, part in enumerate(parts[:-1], 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=place)
            if _is_link(part, place):
                raise LeadsOutside(name, f"{posixpath.join(*parts[:depth])} is a link")
            place = stack.enter_context(_opened(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=place)))
        if _is_link(parts[-1], place):
            raise LeadsOutside(name, "there is a link of that name")
        _replace(place, parts[-1], data, 0o777 if executable else 0o666)
    return folder.joinpath(*parts)


def remove_below(folder: Path, name: str) -> None:
    """Remove a file below ``folder``, if it exists. Names are interpreted, and links refused, as in `write_below`."""
    *above, last = _parts(name)
    with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, NotADirectoryError):
        place = stack.enter_context(_opened(os.open(folder, _FOLDER)))
        for part in above:
            if _is_link(part, place):
                raise LeadsOutside(name, f"{part} is a link")
            place = stack.enter_context(_opened(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=place)))
        os.unlink(last, dir_fd=place)


def _parts(name: str) -> list[str]:
    plain = posixpath.normpath(name.lstrip("/"))
    if plain == ".." or plain.startswith("../"):
        raise LeadsOutside(name, "it points outside the folder")
    if plain == "." or name.endswith("/") or "\0" in name:
        raise LeadsOutside(name, "it does not name a file")
    return plain.split("/")


def _replace(place: int, name: str, data: bytes, mode: int) -> None:
    new = f".{uuid.uuid4().hex}.part"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=place)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)  # replaces a link, and does not follow it
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=place)
        raise


def _is_link(name: str, place: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)
