"""Records of an author's own steps by plain commands: a transaction that the server drops if the claim was touched.

A script costs the server more than all that this one does. So where steps follow closely the connection watches the
task's record, and a step is a transaction, with which the next look at the record goes out: one round trip. A claim
changes hands only by writes to that record; no heartbeat is one. From a look that found the token on, whatever writes
there has the server drop the transaction. What was dropped, or whose answer was lost, is recorded by the script, which
finds out why.

Only a connection that one task uses watches anything: a transaction ends what is watched by all who share it.
"""

from collections.abc import Callable

import hiredis
from redis.exceptions import ResponseError

from runner.providers.redis.pipelined import PipelinedConnection

_RECORDED = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n:"
"""With what the server answers that a step is recorded, before how many steps its run has paid."""


class WatchedTask:
    """The record of a claimed task on its own connection, whose ``watcher`` this is while the server watches it.

    Each look has the server say that it watches. That it takes transactions is found out before the first one: without
    them a command would be done whatever else is refused.
    """

    def __init__(self, line: PipelinedConnection, run: str, task: str, journal: str, token: int) -> None:
        self._line, self._run, self._task, self._token = line, run, task, str(token)
        look = _pack("WATCH", task) + _pack("HMGET", task, "token", "reached")
        first_look = _pack("WATCH", task) + _pack("HMGET", task, "token", "reached", "crashes", "handed")
        self._try = (_pack("UNWATCH") + _pack("MULTI") + _pack("EXEC") + first_look).encode()
        self._head = _pack("MULTI") + _pack("HSETNX", journal, "", "").removesuffix("0\r\n\r\n$0\r\n\r\n")
        self._look = _pack("EXEC") + look
        self._remove = _pack("HDEL", run, "paid").encode()
        self._uncount = _pack("HINCRBY", run, "paid", "-1").encode()
        self._held = f"\r\n:0\r\n+OK\r\n*2\r\n${len(self._token)}\r\n{token}\r\n$"
        self.begun = self._tail = ""

    def begin(self, script: bytes, begun: str, reached: int) -> bool:
        """Record a step by this script, and look at the task. Returns whether it was recorded."""
        self._line.watcher = None
        answers = self._line.ask_all(script + self._try, 6)
        if type(answers) is not list or answers[0] != 1:
            return False
        if answers[2:5] != ["OK", [], "OK"]:
            self._line.refused_to_watch(answers[2:5])
        elif answers[5] == [self._token, str(reached), "0", None]:  # what its progress ends has ended
            note = _pack("HSET", self._task, "reached", "")  # of what is under way the script has just said the same
            self._tail = _pack("HINCRBY", self._run, "paid", "1") + note.removesuffix("0\r\n\r\n")
            self.begun = begun
            self._line.watcher = self
        return True

    def record(self, step: str, value: str, reached: int, meanwhile: Callable[[], object]) -> bool:
        """Record a step that has no record yet, and look again. Returns whether it was recorded.

        ``meanwhile`` is called while the server is at it.
        """
        line, at = self._line, str(reached)
        if step.isascii() and value.isascii():  # as long as they are in bytes
            name, text = len(step), len(value)
        else:
            name, text = len(step.encode()), len(value.encode())
        line.watcher = None
        commands = (
            f"{self._head}{name}\r\n{step}\r\n${text}\r\n{value}\r\n{self._tail}{len(at)}\r\n{at}\r\n{self._look}"
        )

        def usual() -> tuple[bytes, bytes]:
            meanwhile()
            return _RECORDED, f"{self._held}{len(at)}\r\n{at}\r\n".encode()

        answers = line.ask_all(commands.encode(), 7, usual)
        first: object
        if type(answers) is int:
            first, paid, line.watcher = 1, answers, self
        elif type(answers) is not list or type(answers[4]) is not list:
            return False
        else:
            first, paid, _ = answers[4]
            if answers[5] == "OK" and answers[6] == [self._token, at]:
                line.watcher = self
            for one in answers[4]:
                if isinstance(one, ResponseError):  # the script fails at that, too, and does no half
                    line.watcher = None
                    if type(paid) is int and type(first) is not int:
                        line.ask_all(self._remove if paid == 1 else self._uncount, 1)
                    return False
        if paid == 1:  # it has recorded some before: the run was removed by hand, and is not to be back
            line.watcher = None
            line.ask_all(self._remove, 1)
            return False
        if not first:  # its record was broken off after it left, and came nevertheless
            line.ask_all(self._uncount, 1)
        return True


def _pack(*command: str) -> str:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub says a tuple of one
    return packed.decode()
