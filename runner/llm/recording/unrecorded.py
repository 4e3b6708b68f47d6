"""Counts calls of models that go past the journal in a task: by host and path, with no key and no question.

What leaves by the standard library's own HTTP client, by gRPC, or by WebSocket is made again when its task restarts,
and is in no account.
"""

import itertools
import os
import re
from collections import Counter
from contextlib import suppress
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.enclosing import current_journal
from runner.llm.recording import wire
from runner.llm.recording.parsers import parsers

SEEN: WeakKeyDictionary[CancelScope, Counter[str]] = WeakKeyDictionary()
"""What was counted, by the scope of the task."""


def may_be(method: str, url: str) -> bool:
    """Whether a request that is about to be made may be such a call."""
    is_here = forks.task or current_journal() is not None
    return bool(is_here) and wire.may_be(method, urlsplit(url).path, lambda: url)


_METHODS = re.compile(
    r"/(?:Stream|Batch|ServerStreaming|Bidi)?(?:GenerateContent|GenerateText|GenerateMessage|EmbedContents?|EmbedText|Embed"
    r"|Predict|RawPredict|GetCompletion|GetCompletionChunk|SampleText|GenerateImage|ModelInfer|ModelStreamInfer)$"
)
"""The methods by which models are asked: Google's, xAI's, Triton's."""


def look_at_rpc(host: str, method: str) -> None:
    """Count a call by gRPC, if its method is one of a model, or a parser or a setting says that it is."""
    url = f"https://{host.rpartition('/')[2]}{method}"
    if _METHODS.search(method) or any(parser.may_be("POST", url) for parser in parsers()):
        _count_here(url)


_SOCKETS = re.compile(r"/(?:realtime|responses|[\w.]*BidiGenerateContent)$")
"""Where models are asked by WebSocket: OpenAI's, Azure's, Google's."""


def look_at_socket(url: str) -> None:
    """Count a connection by WebSocket, if it leads to a model."""
    if _SOCKETS.search(urlsplit(url).path) or any(parser.may_be("GET", url) for parser in parsers()):
        _count_here(url)


def look_at(method: str, url: str, body: bytes) -> None:
    """Count a request, if it is a call of a model made in a task."""
    if wire.request(method, url, body, lambda _: False) is not None:
        _count_here(url)


def _count_here(url: str) -> None:
    if forks.task:
        forks.report(_place(url))
    elif (found := current_journal()) is not None:
        _count(found[0].cancel_scope, url)


def _count(scope: CancelScope, url: str) -> None:
    SEEN.setdefault(scope, Counter())[_place(url)] += 1


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def take(scope: CancelScope) -> str:
    """What was counted in a task and in what it forked, in words; "" for nothing. It is counted no longer."""
    found = SEEN.pop(scope, Counter[str]()) + forks.reported_in(scope)
    return ", ".join(f"{count} to {place}" for place, count in sorted(found.items()))


class Forks:
    """Counts the calls of processes that were forked in tasks, as by `multiprocessing`: no journal is theirs."""

    def __init__(self) -> None:
        self.task = 0  #: in which task this process was forked; 0 for none
        self.are_there = False  #: whether one was forked here
        self._forking = 0
        self._numbers: WeakKeyDictionary[CancelScope, int] = WeakKeyDictionary()
        self._next = itertools.count(1)
        self._ends: tuple[int, int] | None = None
        self._reported: dict[int, Counter[str]] = {}

    def before(self) -> None:
        """One is about to be forked."""
        found = current_journal()
        if found is None:
            self._forking = self.task
            return
        if self._ends is None:
            self._ends = os.pipe()
            for end in self._ends:
                os.set_blocking(end, False)
        self._forking = self._numbers.setdefault(found[0].cancel_scope, next(self._next))
        self.are_there = True

    def after_in_child(self) -> None:
        """This is it."""
        self.task, self.are_there = self._forking, False

    def report(self, place: str) -> None:
        """Report a call to the task's process; thousands that it has not read yet are enough."""
        if self._ends is not None:
            with suppress(OSError):
                os.write(self._ends[1], f"{self.task} {place}\n".encode()[:512])

    def reported_in(self, scope: CancelScope) -> Counter[str]:
        """What was reported to this process by those that this task forked."""
        if self._ends is not None:
            with suppress(BlockingIOError):
                self._read(self._ends[0])
        return self._reported.pop(self._numbers.pop(scope, 0), Counter())

    def _read(self, end: int) -> None:
        for line in iter(lambda: os.read(end, 2**16), b""):
            for one in line.decode("utf-8", "replace").splitlines():
                number, _, place = one.partition(" ")
                if number.isdecimal():
                    self._reported.setdefault(int(number), Counter())[place] += 1


forks = Forks()
os.register_at_fork(before=forks.before, after_in_child=forks.after_in_child)
