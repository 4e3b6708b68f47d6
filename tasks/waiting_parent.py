"""The parent of workers while it only waits: a program that imports hardly anything, run by its path.

What `runner.tasks.parent` has imported, to fork workers from it, takes 28 MB that no worker uses any more. So once they
run, it becomes this program: the same process, with the same children. It forwards signals to them, and becomes
`runner.tasks.parent` again when one has ended or another is to be started.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # not by `typing`, which takes a megabyte
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

STATE = "RUNNER_PARENT_STATE"  #: where each of the two programs tells the other what it knows
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK = 1000  #: milliseconds


def listen(ask: "Callable[[int, FrameType | None], None]") -> None:
    """Have ``ask`` called for each of these signals, except for a hang-up that is ignored: ``nohup`` wants that."""
    for signum in ENDING:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def become(program: list[str], state: "dict[str, Any]", asked: "Sequence[int]") -> "OSError | None":
    """Become the other program unless asked to end; signals wait for it meanwhile. Returns why it could not be run."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # for what came before, `listen` has called
    try:
        if not asked:
            for one in state["pipes"]:
                os.set_inheritable(one, True)
            os.execve(program[0], program, {**os.environ, STATE: json.dumps(state)})
    except OSError as error:
        for one in state["pipes"]:
            os.set_inheritable(one, False)
        return error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None


def main() -> int:
    """Wait for the workers. Returns the exit code, once all have ended because this process was asked to."""
    state = json.loads(os.environ[STATE])
    _, told, wanted, _ = state["pipes"]
    running = {os.pidfd_open(one["pid"]): one["pid"] for one in state["workers"] if one["pid"]}
    asked: list[int] = []

    def send(number: int, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just been waited for
            signal.pidfd_send_signal(number, signum)

    def ask(signum: int, _frame: "FrameType | None") -> None:
        asked.append(signum)
        os.write(told, bytes([signum]) * len(running))
        for number in list(running):  # once is enough; whoever asks a third time means it
            send(number, signal.SIGTERM if len(asked) < 3 else signal.SIGKILL)

    listen(ask)
    watched = select.poll()
    for one in (wanted, *running):
        watched.register(one, select.POLLIN)
    said = ""
    while not asked:
        ready = {number for number, _ in watched.poll(LOOK)}
        if wanted in ready:
            _take_requests(os.read(wanted, 1 << 16), state)
        is_due = any(not one["pid"] and one["due"] <= time.monotonic() for one in state["workers"])
        if is_due or state["requests"] or ready & running.keys():
            error = become(state["program"], state, asked)
            if error is not None:
                if str(error) != said:
                    print(
                        f"runner worker: no worker can be started: {error}; trying again", file=sys.stderr, flush=True
                    )
                said = str(error)
                time.sleep(LOOK / 1000)
    watched.unregister(wanted)
    end = time.monotonic() + state["ends_within"]
    while running:
        for number, pid in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[number]
                watched.unregister(number)
            elif time.monotonic() > end:
                send(number, signal.SIGKILL)
        if running:
            watched.poll(LOOK)
    return 0


def _take_requests(lines: bytes, state: "dict[str, Any]") -> None:
    """Keep the requests for the other program, except that one on demand is not needed yet, which is said often."""
    for request in map(json.loads, lines.splitlines()):
        if "digest" in request or request["now"]:
            state["requests"].append(request)
        elif not (one := state["workers"][request["part"] - 1])["pid"]:
            one["due"] = time.monotonic() + state["silent"]


if __name__ == "__main__":
    sys.exit(main())
