"""What a test started ends with the test's process, also when that is killed.

A shell in a session of its own waits at a pipe whose other end only that process has: when the pipe closes, it kills
what is still listed. ``atexit`` alone runs in no process that is killed, and ``PR_SET_PDEATHSIG`` heeds threads.
"""

import atexit
import contextlib
import os
import subprocess

_WATCH = """
while read -r what one; do
    case $what in
        keep) left="$left $one " ;;
        drop) case $left in *" $one "*) left="${left%% $one *}${left#* $one }" ;; esac ;;
    esac
done
for one in $left; do kill -s KILL -- "$one" 2>/dev/null; done
"""

_watchers: dict[int, "subprocess.Popen[str]"] = {}


def end_with_us(group: int) -> None:
    """When this process is no more, its group ``group`` is killed (or one process: its pid, negative)."""
    _tell("keep", group)


def ended(group: int) -> None:
    """It is to be forgotten: its number may be another's now."""
    _tell("drop", group)


def _tell(what: str, group: int) -> None:
    here = os.getpid()
    if here not in _watchers:  # of a process that forked, the parent's is not ours
        _watchers[here] = subprocess.Popen(
            ["sh", "-c", _WATCH], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
        atexit.register(_watchers[here].communicate)
    pipe = _watchers[here].stdin
    with contextlib.suppress(OSError, ValueError):
        assert pipe is not None
        pipe.write(f"{what} {-group}\n")
        pipe.flush()
