"""A connection for one caller at a time, which may leave answers unread for later."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse, islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hiredis
from redis import ConnectionError, TimeoutError
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.exceptions import DataError, NoScriptError, ResponseError

from runner.providers.redis import keys
from runner.providers.redis.connection import Client, is_pushed
from runner.providers.redis.outages import TRANSIENT_ERRORS, NotNow, forbidden, not_now, retry_while_unavailable
from runner.providers.redis.receiver import Receiver, wait_in_system_call

if TYPE_CHECKING:
    from runner.providers.redis.scripts import LuaScript

log = logging.getLogger(__name__)

"""Whether it is no answer: what a server says by itself, of its maintenance for one, comes between them."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas must acknowledge a commit before its worker continues, and for how many seconds it waits."""

    many: int = 0
    seconds: float = 1.0


class PipelinedConnection:
    """One connection of its own, for one caller at a time, on which an answer can be left for later.

    It waits as a `PatientClient` does.

    `send_nowait` sends without waiting: its answer is read, and thrown away, with the next `execute_command`. That of
    what is sent by `post` can be read later. What breaks off in the middle (an interrupt, a lost server) closes the
    connection, so no answer is ever taken for another's.
    """

    def __init__(self, client: Client, replicas: Replicas = Replicas()) -> None:
        self.home = keys.home_of(client)
        self.lock = threading.RLock()
        """Taken for each command; whoever sends several takes it for all of them. A task's threads have one line."""
        self._replicas = replicas
        self._behind = False
        self._mend: Callable[[], bool] = getattr(client, "mend", bool)
        self._connection: Any = retry_while_unavailable(client.connection_pool.get_connection)
        self._receiver = Receiver() if wait_in_system_call(self._connection) else None
        self._unread = deque[Callable[[Any], object] | None]()
        self._is_posted = False
        self._closed = False
        self.reconnected = True
        """Whether what was sent without waiting may be lost, or was refused: see who sends it again."""
        self.known: set[str] = set()
        """The scripts that the server has been given on this connection, by their hash."""
        self.missed: Callable[[], object] = bool
        """Called when a command was not taken: what was sent `later` before it may be lost, or refused, too."""
        self.watches = True
        """Whether the server lets it watch keys, as far as is known."""
        self.watcher: object = None
        """For whom the server watches a key, if nothing was sent since that may write there."""

    def side(self) -> Any:
        """What one task writes to: the connection itself, as no other task does meanwhile.

        Each task finds out for itself whether the server lets it watch keys: an ACL may have been given back.
        """
        self.watches = True
        return self

    def send_nowait(self, *command: Any, heard: Callable[[Any], object] | None = None) -> None:
        """Send a command without waiting. ``heard`` gets its answer when it is read; None for an error, or if lost."""
        try:
            with self.lock:
                self._unread.append(heard)
                self._send(*command)
        except TRANSIENT_ERRORS:
            self.close()
        except BaseException:
            self.close()
            raise

    def load(self, script: "LuaScript") -> None:
        """Have the server know the script of what is to be sent without waiting."""
        self.execute_command("SCRIPT", "LOAD", script.text)
        self.known.add(script.sha)

    def post(self, command: bytes) -> None:
        """Send a command whose answer `answer` gives; nothing else is to be sent here before."""
        try:
            with self.lock:
                self._unread.append(None)
                self.watcher = None
                if self._closed:
                    self._open()
                self._connection._sock.sendall(command)  # as redis-py does, which would be one more call
                self._is_posted = True
        except (*TRANSIENT_ERRORS, OSError):
            self.close()
        except BaseException:
            self.close()
            raise

    def answer(self, command: bytes, *, looks: bool = True) -> Any:
        """The answer to the command that was posted. It is sent again if it was lost with its connection.

        It is 1 as a rule: that is compared, and not parsed. One that comes soon is not slept for if this ``looks``.
        """
        if not self._is_posted:
            return self.execute_command(command)
        try:
            parser = self._connection._parser
            if len(self._unread) == 1 and not parser._reader.has_data():
                with self.lock:
                    sock, receiver, buffer = self._connection._sock, self._receiver, parser._buffer
                    size = receiver.receive(sock, buffer) if looks and receiver is not None else sock.recv_into(buffer)
                    if size == 4 and buffer.startswith(b":1\r\n"):
                        self._is_posted = False
                        self._unread.pop()
                        return 1
                    if size:
                        parser._reader.feed(buffer, 0, size)
        except OSError as error:
            self.close()
            self.missed()
            lost = ConnectionError(f"reading from the server failed: {error}")
            return retry_while_unavailable(partial(self.ask, command), after=lost)
        except BaseException:
            self.close()
            self.missed()
            raise
        try:
            return self.ask()
        except TRANSIENT_ERRORS as error:
            return retry_while_unavailable(partial(self.ask, command), after=error)

    def execute_command(self, *command: Any) -> Any:
        """Send a command and return its answer: given by its parts, or as the bytes that it is packed to."""
        try:
            return self.ask(*command)
        except TRANSIENT_ERRORS as error:
            return retry_while_unavailable(partial(self.ask, *command), after=error)

    def ask(self, *command: Any) -> Any:
        """The same, once; without a command, the answer to what was posted."""
        try:
            with self.lock:
                if command:
                    self._send(*command)
                else:
                    self._is_posted = False
                    self._unread.pop()
                if self._unread:
                    self._read_unread()
                return self._read()
        except NotNow as refusal:
            self.missed()
            if refusal.moved:
                self.close()
            elif refusal.overwritten:
                refusal.mended = self._mend()
            raise
        except NoScriptError:
            raise
        except ResponseError:
            self.missed()
            raise
        except BaseException:
            self.close()
            self.missed()
            raise

    def ask_all(
        self, commands: bytes, many: int, usual: Callable[[], tuple[bytes, bytes]] | None = None
    ) -> list[Any] | int | None:
        """Send so many commands together, once. Returns their answers, errors among them; None where they are lost.

        ``usual`` is called while the server is at them. It returns what the answers mostly begin and end with, as they
        are sent, with one number between: where it is so, that number is returned, and nothing is parsed.
        """
        try:
            with self.lock:
                if self._closed or self._unread:
                    self._open()
                    self._read_unread()
                sock, parser = self._connection._sock, self._connection._parser
                reader, buffer, answers = parser._reader, parser._buffer, list[Any]()
                sock.sendall(commands)
                if usual is not None:
                    head, tail = usual()
                while len(answers) < many:
                    if not (size := sock.recv_into(buffer)):
                        raise ConnectionError("the server closed the connection")
                    if usual is not None:
                        usual, number = None, buffer[len(head) : size - len(tail)]
                        if number.isdigit() and buffer.startswith(head) and buffer.endswith(tail, 0, size):
                            return int(number)
                    reader.feed(buffer, 0, size)
                    answers += islice(filterfalse(is_pushed, iter(reader.gets, NOT_ENOUGH_DATA)), many - len(answers))
                return answers
        except (*TRANSIENT_ERRORS, OSError):
            self.close()
            self.missed()
            return None
        except BaseException:
            self.close()
            self.missed()
            raise

    def ask_for(self, call: Callable[[Any], Any]) -> Any:
        """What ``call`` gives of this line, asked once; None also if the server is away or refuses."""
        try:
            return call(SimpleNamespace(execute_command=self.ask))
        except (*TRANSIENT_ERRORS, ResponseError):
            return None

    def refused_to_watch(self, answers: list[Any]) -> None:
        """Watch no more, as an ACL may forbid it; but where one of these answers is a refusal that passes by itself."""
        self.watches = any(found and not forbidden(found) for found in map(not_now, answers))

    def replicated(self) -> None:
        """Wait until enough replicas have what was written here, or the time is up: the log says so, once in a row."""
        if not self._replicas.many:
            return
        try:
            have = int(self.execute_command("WAIT", self._replicas.many, int(self._replicas.seconds * 1000)))
        except ResponseError as error:  # an ACL may forbid it
            if not self._behind:
                log.error("commits do not wait for replicas: %s", error)
            self._behind = True
            return
        behind = have < self._replicas.many
        if behind and not self._behind:
            wanted = (self._replicas.many, self._replicas.seconds)
            log.warning("%d of %d replicas acknowledged a commit after %g s; continuing without them", have, *wanted)
        self._behind = behind

    def _send(self, *command: Any) -> None:
        self.watcher = None
        if self._closed:
            self._open()
        packed = command[0]
        if type(packed) is not bytes or len(command) > 1:
            try:
                packed = hiredis.pack_command(command)
            except TypeError as error:
                raise DataError(str(error)) from None
        self._connection.send_packed_command((packed,), check_health=False)

    def _open(self) -> None:
        if self._closed:
            self._connection.connect()  # left alone it would return to the same server, whichever is the master now
            self._receiver = Receiver() if wait_in_system_call(self._connection) else None
            self._closed = False

    def settle(self) -> None:
        """Read all that is unread: from here on `fresh` says whether it was taken."""
        try:
            with self.lock:
                self._read_unread()
        except TRANSIENT_ERRORS:
            self.close()
        except BaseException:
            self.close()
            raise

    def _read_unread(self) -> None:
        self._is_posted = False
        while self._unread:
            answer = None
            try:
                answer = self._read()
            except ResponseError:
                self.reconnected = True
                self.known.clear()
            if (heard := self._unread.popleft()) is not None:
                heard(answer)

    def _read(self) -> Any:
        """The next answer. What redis-py does around its parser is done by who calls this, and costs as much."""
        try:
            answer = self._connection._parser.read_response()
        except OSError as error:  # a reset: an end the parser itself tells as redis-py's errors
            raise ConnectionError(f"reading from the server failed: {error}") from None
        except ConnectionError as error:
            if isinstance(error.__context__, BlockingIOError):
                raise TimeoutError("the server did not answer in time") from None
            raise
        if isinstance(answer, ResponseError):
            raise getattr(self._connection, "refusal", not_now)(answer) or answer
        return answer

    def close(self) -> None:
        """Close the socket; the next command opens it again."""
        lost = [heard for heard in self._unread if heard is not None]
        self._unread.clear()
        self.known.clear()
        self._is_posted = False
        self._closed = True
        self.reconnected = True
        self.watcher = None
        self._connection.disconnect()
        for heard in lost:
            heard(None)
