"""A command that has another one forked by a server of `fork_server`: with its words, environment, folder and files.

``python -IS forked.py SOCKET WORDS...``, in a tenth of the time that importing would take. Signals are handed on; what
was forked ends with this.
"""

import array
import json
import os
import signal
import socket
import sys

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(path: str, *words: str) -> int:
    """The exit status of the other command."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(path)
    folder = os.getcwd()  # noqa: PTH109 -- pathlib is a third of what this imports
    order = {"words": words, "environment": dict(os.environ), "folder": folder, "passed": []}
    order |= {"own session": True, "own group": False}
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # the pid is a message, the status another
    # The other may be seen to work before its number is read here: what is sent by then waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    with there:
        numbers = array.array("i", [there.fileno(), 0, 1, 2])
        server.sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    pid = int(here.recv(32))
    for signum in HANDED_ON:
        signal.signal(signum, lambda signum, _: os.kill(pid, signum))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    status = int(here.recv(32) or signal.SIGKILL)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
