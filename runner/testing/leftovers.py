"""What a test started ends with the test's process, also when that is killed.

A shell in a session of its own waits at a pipe whose other end only that process has: when the pipe closes, it kills
what is still listed, and removes folders. ``atexit`` alone runs in no process that is killed, and ``PR_SET_PDEATHSIG``
heeds threads.
"""

import atexit
import contextlib
import os
import subprocess
from pathlib import Path

_WATCH = """
nl='
'
left=$nl
while read -r what one; do
    case $what in
        keep) left="$left$one$nl" ;;
        drop) case $left in *"$nl$one$nl"*) left="${left%%"$nl$one$nl"*}$nl${left#*"$nl$one$nl"}" ;; esac ;;
    esac
done
IFS=$nl
set -f
for one in $left; do case $one in -*|[0-9]*) kill -s KILL -- "$one" 2>/dev/null ;; esac; done
for one in $left; do case $one in /*) rm -rf -- "$one" 2>/dev/null || { sleep 0.2; rm -rf -- "$one"; } ;; esac; done
"""

_watchers: dict[int, "subprocess.Popen[str]"] = {}


def end_with_us(group: int) -> None:
    """When this process ends, kill the process group ``group`` (or the one process with the negative pid)."""
    _instruct("keep", f"{-group}")


def remove_with_us(folder: Path) -> None:
    """When this process has ended, and the processes that were to end with it, remove this folder."""
    _instruct("keep", f"{folder.absolute()}")


def removed(folder: Path) -> None:
    """Forget a folder: it is removed already."""
    _instruct("drop", f"{folder.absolute()}")


def ended(group: int) -> None:
    """Forget a process: it has ended, and its pid may be another's now."""
    _instruct("drop", f"{-group}")


def _instruct(what: str, one: str) -> None:
    here = os.getpid()
    if here not in _watchers:  # of a process that forked, the parent's is not ours
        _watchers[here] = subprocess.Popen(
            ["sh", "-c", _WATCH], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
        atexit.register(_watchers[here].communicate)
    pipe = _watchers[here].stdin
    with contextlib.suppress(OSError, ValueError):
        assert pipe is not None
        pipe.write(f"{what} {one}\n")
        pipe.flush()
