"""Describes the contents of a bundle, for ``runner submit``."""

from collections.abc import Callable

from runner.bundles.bundle import Bundle, contents
from runner.bundles.selection import IGNORE_FILE
from runner.cli.stdio import counted
from runner.core.plain_text import json_text

_KINDS = {
    "secret": "may hold secrets",
    "checkpoints": "checkpoints",
    "link": "links out of the folder",
    "dead link": "links to nothing",
    "special": "no regular files",
    "own": "read or written by this command",
}
_MOST = 8  #: names in the line of `submit`


def left_out(bundle: Bundle) -> str | None:
    """One line that names what is left out by default; None where there is nothing."""
    listed = [one for one in bundle.left_out if one.why in _KINDS and one.why != "own"]
    if not listed:
        return None
    shown, parts = listed[:_MOST], []
    for why, kind in _KINDS.items():
        if names := [one.name for one in shown if one.why == why]:
            parts.append(f"{', '.join(names)} ({kind})")
    if more := len(listed) - len(shown):
        parts.append(f"and {more} more")
    return f"not packed: {', '.join(parts)}; a line !NAME in {IGNORE_FILE} includes one, --dry-run lists all"


def calls(made: int, kept: int, name: str) -> str | None:
    """One line on the calls that a file made while it was read; None where it made none."""
    if not made:
        return None
    line = f"{name} made {counted(made, 'call')} while it was imported here: the answers go with its runs"
    if kept == made:
        return line
    return f"{line}, except the last {made - kept:,}, which are made again: --bundle-limit leaves no room for them"


def calls_unrecorded(made: int, name: str) -> str | None:
    """One line on those that it made past the journal; None where it made none."""
    if not made:
        return None
    return f"{name} made {counted(made, 'call')} past the journal while it was imported here: made again wherever it is"


def show(bundle: Bundle, crew: str, as_json: bool, write: Callable[[str], None]) -> None:
    """What would be packed, file by file, and what not."""
    files = contents(bundle)
    if as_json:
        found = {
            "crew": crew,
            "bundle": bundle.sha256,
            "bytes": bundle.size,
            "files": [{"name": name, "bytes": size} for name, size in files],
            "left_out": [one._asdict() for one in bundle.left_out],
        }
        write(json_text(found) + "\n")
        return
    for name, size in files:
        write(f"{name}  {size:,} bytes\n")
    for one in bundle.left_out:
        write(f"not packed: {one.name}  {_KINDS.get(one.why, f'by {IGNORE_FILE}')}\n")
    write(f"{crew}: {len(files)} files, {bundle.size:,} bytes; nothing was stored\n")
