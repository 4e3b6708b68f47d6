"""One connection for the writes of many tasks in a process; each task has a side of it."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

from runner.core import waiting
from runner.providers.redis.connection import Client
from runner.providers.redis.pipelined import PipelinedConnection, Replicas


class SharedConnection(PipelinedConnection):
    """A pipelined connection that many tasks use, from several threads: one command at a time."""

    def __init__(self, client: Client, replicas: Replicas) -> None:
        self._turn = threading.RLock()
        self._sides: weakref.WeakSet[ConnectionSide] = weakref.WeakSet()
        super().__init__(client, replicas)
        self.missed = self._missed
        self.of_sides = self.execute_command, self.send_nowait, self.settle, self.replicated, self.load

    def side(self) -> "ConnectionSide":
        """Return the side of the connection that belongs to one task."""
        with self._turn:
            found = ConnectionSide(self)
            self._sides.add(found)
        return found

    def send_nowait(self, *command: Any, heard: Callable[[Any], object] | None = None) -> None:
        """Send a command without waiting for its answer."""
        with self._turn:
            super().send_nowait(*command, heard=heard)
            self._pass_on()

    def ask(self, *command: Any) -> Any:
        """Send a command, once, and return its answer."""
        with self._turn:
            try:
                return super().ask(*command)
            finally:
                self._pass_on()

    def settle(self) -> None:
        """Read all that is unread."""
        with self._turn:
            try:
                super().settle()
            finally:
                self._pass_on()

    def _pass_on(self) -> None:
        """What may be lost may be any task's."""
        if self.reconnected:
            self.reconnected = False
            for side in self._sides:
                side.reconnected = True

    def _missed(self) -> None:
        for side in list(self._sides):
            side.missed()


class ConnectionSide:
    """What one task sees of a connection: a `PipelinedConnection` for one caller at a time."""

    def __init__(self, line: SharedConnection) -> None:
        self._line, self.home = line, line.home
        self.lock = waiting.TaskLock()  # its task may have threads, and coroutines
        self.execute_command, self.send_nowait, self.settle, self.replicated, self.load = line.of_sides
        self.known = line.known
        self.reconnected = False
        self.missed: Callable[[], object] = bool
        self.watches, self.watcher = False, None  # others use the connection as well
