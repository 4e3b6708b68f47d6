"""What a streamed answer passes through on its way to its reader."""

from collections.abc import Callable
from typing import Protocol

from runner.core.errors import RunnerError
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.llm.recording import wire


class Streamed(Protocol):
    """The call whose answer it is."""

    @property
    def cancel_scope(self) -> CancelScope:
        """That of its task."""

    async def check_async(self) -> None:
        """Stop here, if the task is to stop."""

    def streamed(self, body: bytes) -> None:
        """Record the answer, which is complete."""

    def broke(self, error: BaseException, why: str = "", *, came: bytes | None = None) -> None:
        """End a call that raised. ``came`` is the part of the answer that its reader has."""

    def close(self) -> None:
        """Nothing more comes of it."""


class Tee:
    """One stream: recorded when it is complete, whoever still reads; in doubt if it breaks off."""

    def __init__(self, tape: wire.Tape, call: Streamed, decode: Callable[[bytes], bytes]) -> None:
        self._tape, self._call, self._decode, self.cancel_scope = tape, call, decode, call.cancel_scope
        self.check_async = call.check_async
        self.is_over = False  #: it is recorded, or broke off

    @property
    def has_said_all(self) -> bool:
        """Whether its reader may stop here: what is left is to be taken before it gets this piece."""
        return self._tape.has_said_all and not self.is_over

    def passed(self, piece: bytes) -> None:
        """A piece of it is about to be given to its reader."""
        try:
            piece = self._decode(piece)
        except ValueError:  # it is its reader's to say so, if it decodes it
            self.broke(_LeftOff("it cannot be decoded"))
            return
        if self._tape.take(piece) and not self.is_over:
            self._complete()
        elif self._tape.broken:
            self.broke(_LeftOff("its service reports an error"))

    def ended(self) -> None:
        """The stream has ended: record it if it is complete."""
        if self._tape.ended() and not self.is_over:
            self._complete()
        else:
            self.broke(_LeftOff("its end is missing"))

    def _complete(self) -> None:
        self.is_over = True
        self._call.streamed(self._tape.body)

    def broke(self, error: BaseException) -> None:
        """Reading it raised."""
        if not self.is_over:
            self.is_over = True
            self._call.broke(error, came=self._tape.came)
            self._call.close()

    def left(self) -> None:
        """The stream is closed: the call is in doubt if it was not read to its end."""
        self.broke(_LeftOff("it was not read to its end"))


class _LeftOff(RunnerError):
    """A stream that was not read to its end."""
