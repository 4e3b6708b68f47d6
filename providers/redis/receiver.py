"""How a connection waits for an answer."""

import contextlib
import socket
import struct
from typing import Any


def wait_in_system_call(connection: Any) -> bool:
    """Have the system count the time that a connection waits, which saves a `poll` before each `send` and `recv`.

    It is the connection's ``socket_timeout``, in seconds. With TLS, and for a socket that is not the standard
    library's, Python itself counts it. Returns whether the system does.
    """
    sock, seconds = connection._sock, connection.socket_timeout
    if not seconds or getattr(type(sock), "recv_into", None) is not _plainly_received:
        return False
    with contextlib.suppress(OSError):  # it is not every system that takes it so
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6)))
        sock.settimeout(None)
        return True
    return False


_plainly_received = socket.socket.recv_into

LOOKS = 200
"""How often an answer is looked for before who waits for it sleeps: some 300 µs. A server on the same machine mostly
answers meanwhile, and to sleep and be woken takes longer, of both sides."""
IN_VAIN = 3  #: times in a row that an answer was not there by then
ASLEEP = 32  #: answers after that for which none looks: the server is busy, or far away


class Receiver:
    """Receives what a server answers at once. Where it comes soon it is looked for, and not slept for."""

    __slots__ = ("_asleep", "_vain")

    def __init__(self) -> None:
        self._vain = self._asleep = 0

    def receive(self, sock: socket.socket, buffer: bytearray) -> int:
        """Receive into this buffer as much as there is, once there is something. Returns how many bytes.

        The system counts the socket's time (see `wait_in_system_call`): raises `BlockingIOError` when it is up.
        """
        if self._asleep:
            self._asleep -= 1
        else:
            for _ in range(LOOKS):
                try:
                    size = sock.recv_into(buffer, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                self._vain = 0
                return size
            self._vain += 1
            if self._vain >= IN_VAIN:
                self._asleep = ASLEEP
        return sock.recv_into(buffer)
