"""How an answer is waited for: looked for where the server answers soon, else slept for."""

import socket

from runner.providers.redis.receiver import ASLEEP, IN_VAIN, LOOKS, Receiver


class Server:
    """A socket whose answers are there at the nth look; who sleeps has each."""

    def __init__(self) -> None:
        self.soon = 1
        self.looks = self.sleeps = self._since = 0

    def recv_into(self, buffer: bytearray, size: int = 0, flags: int = 0) -> int:
        if flags == socket.MSG_DONTWAIT:
            self.looks += 1
            self._since += 1
            if self._since < self.soon:
                raise BlockingIOError
        else:
            self.sleeps += 1
        self._since = 0
        buffer[:2] = b"ok"
        return 2


def ask(receiver: Receiver, server: Server) -> tuple[int, int]:
    """How often it looked and slept for one answer."""
    before, buffer = (server.looks, server.sleeps), bytearray(4)
    assert receiver.receive(server, buffer) == 2
    assert buffer.startswith(b"ok")
    return server.looks - before[0], server.sleeps - before[1]


def test_an_answer_that_comes_soon_is_not_slept_for():
    receiver, server = Receiver(), Server()
    server.soon = LOOKS
    assert [ask(receiver, server) for _ in range(3 * ASLEEP)] == [(LOOKS, 0)] * 3 * ASLEEP


def test_one_that_does_not_is_slept_for_and_only_now_and_then_looked_for():
    receiver, server = Receiver(), Server()
    server.soon = LOOKS + 1
    assert [ask(receiver, server) for _ in range(IN_VAIN)] == [(LOOKS, 1)] * IN_VAIN
    for _ in range(3):
        assert [ask(receiver, server) for _ in range(ASLEEP)] == [(0, 1)] * ASLEEP
        assert ask(receiver, server) == (LOOKS, 1)


def test_they_are_looked_for_again_once_they_come_soon():
    receiver, server = Receiver(), Server()
    server.soon = LOOKS + 1
    for _ in range(IN_VAIN + ASLEEP):
        ask(receiver, server)
    server.soon = 1
    assert [ask(receiver, server) for _ in range(ASLEEP)] == [(1, 0)] * ASLEEP
    server.soon = LOOKS + 1
    assert ask(receiver, server) == (LOOKS, 1)
    server.soon = 1
    assert ask(receiver, server) == (1, 0), "one late answer is not a server that is far away"


def test_of_a_server_the_end_is_received():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert Receiver().receive(ours, bytearray(4)) == 0
