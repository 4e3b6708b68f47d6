"""By what a call of an agent's model is found before its request is built: a chain of hashes over its conversation.

A conversation only grows, so each call hashes what was said since the last one, and no more. A chain finds no answer:
it finds the hash of the request that was made of the same conversation with the same settings by the same code. That
hash says which call it is, as for any other client. So a chain that is not found costs time, and is no other call.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from runner.core.context_value import ContextValue
from runner.core.ledger import CallResult, caller
from runner.journal.current_journal import code_here, current_journal
from runner.llm.recording import wire

T = TypeVar("T")

FORM = 1
"""Raised when `LLM` makes other requests of the same conversation: a test compares them."""


class Chain:
    """The chain of one conversation. Its messages are not changed once they are said, but where it is `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with the first message again: others were changed."""
        self._hash = hashlib.sha256()
        self._last: Mapping[str, Any] | None = None
        self._hashed = 0

    def at(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """The hash of the conversation as far as it is; None if it is not JSON."""
        if len(messages) < self._hashed or (self._last is not None and messages[self._hashed - 1] is not self._last):
            self.reset()  # another conversation
        for message in messages[self._hashed :]:
            text = _text(message)
            if text is None:
                return None
            self._hash.update(b"%d\n" % len(text))
            self._hash.update(text)
            self._last = message
            self._hashed += 1
        return self._hash.hexdigest()


def hashed(*about: Any) -> str | None:
    """The hash of what a call is found by, and of the code that does the task here.

    None if that code is not known, or what the call is found by is not JSON.
    """
    code = code_here()
    text = _text((FORM, code, *about)) if code else None
    return None if text is None else hashlib.sha256(text).hexdigest()[:32]


def _text(value: Any) -> bytes | None:
    try:
        text = json.dumps(value, ensure_ascii=False, check_circular=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return wire.comparable(text.encode("utf-8", "surrogatepass"))


class _Offer:
    """The chain of a call that is about to be made, until a request takes it."""

    def __init__(self, chain: str) -> None:
        self.chain, self.is_taken = chain, False


offered: ContextVar[_Offer | None] = ContextVar("runner_chain", default=None)


def offering(chain: str | None) -> ContextValue[_Offer | None]:
    """The call of a model that is made in here is recorded with its chain."""
    return ContextValue(offered, _Offer(chain) if chain else None)


class Link:
    """The chain of the request that is on its way here, if one is `offered`, and not taken.

    A call that an observer of this one makes has none.
    """

    def __init__(self) -> None:
        offer = offered.get()
        self._offer = None if offer is None or offer.is_taken else offer
        self.chain = ""
        if self._offer is not None:
            self._offer.is_taken, self.chain = True, self._offer.chain

    def break_off(self) -> None:
        """Nothing came of it: the client may make another one."""
        if self._offer is not None:
            self._offer.is_taken = False


NO_LINK = Link()


def replayed(chain: str, read: Callable[[bytes], T | None]) -> T | None:
    """Serve the answer that is recorded for this chain: return what ``read`` makes of its body.

    Returns None, and serves nothing, if there is none, or if ``read`` returns None.
    """
    found = current_journal()
    if found is None:
        return None
    journal, _ = found
    served = journal.serve_call(chain, lambda recorded: _both(wire.answer_of(recorded), read))
    if served is None:
        return None
    entry, (answer, value) = served
    journal.cancel_scope.check()
    on_result = caller.get().on_result
    if on_result is not None:
        on_result(CallResult(entry.model, answer.usage, True))
    given: T = value
    return given


def _both(answer: wire.Answer, read: Callable[[bytes], T | None]) -> tuple[wire.Answer, T] | None:
    value = read(answer.body)
    return None if value is None else (answer, value)
