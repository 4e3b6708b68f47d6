"""Decides what an agent does next, as a function of its conversation. Pure: no model, no tools, no clock.

The conversation is all that is known: from what was recorded of it the agent continues. ::

    told something ──> Ask ──> the model wants tools used ──> Use ──> their results are told ──> Ask ...
                        └────> the model answers ──> does it fit? ──> Done
                                                        └─ no ──> Say what is wrong, and Ask again, so often; then Fail

After ``max_iter`` rounds of tools the model is told to answer now, and offered no tools any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

ANSWER = "Final Answer:"
ERROR = "Error: "
"""How the result of a tool call begins that went wrong."""

_NOW = "You may use no more tools. Give your best final answer now, from what you know."
_EMPTY = "Your answer was empty. Give your answer as text."
_UNFIT = "That answer does not fit: "

NONE: frozenset[str] = frozenset()
REPAIRS = 2
"""`Rules.repairs`, in one attempt."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model; ``tools`` says whether it is offered tools."""

    tools: bool


@dataclass(frozen=True, slots=True)
class Use:
    """Make these tool calls concurrently. ``first`` is the index of the first one in the conversation."""

    calls: tuple[Message, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Say:
    """Add a message for the model first."""

    message: Message


@dataclass(frozen=True, slots=True)
class Done:
    """The final answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The agent gives up."""

    reason: str


Move = Ask | Use | Say | Done | Fail


@dataclass(frozen=True)
class Rules:
    """How long to continue, and what an answer must be.

    Attributes:
        repairs: how often the model is asked again after an answer that is empty or does not fit.
        answering: the tools whose result is the answer.
        unfit: returns what is wrong with an answer; None if nothing is.
    """

    max_iter: int = 25
    repairs: int = REPAIRS
    answering: frozenset[str] = NONE
    unfit: Callable[[str], str | None] | None = None


class Summary:
    """What the next move depends on. A conversation only grows, so each message is read once.

    Messages ``from_hooks`` do not count as instructions to the agent, so its rounds are not counted from zero again.
    """

    def __init__(self, from_hooks: Sequence[Message] = ()) -> None:
        self._from_hooks = from_hooks
        self.last: Message = {}
        self.calls = 0  #: of tools, in all messages
        self.asked: Sequence[Message] = ()  #: the calls of the latest round
        self.results: dict[str, Message] = {}  #: of that round, by the ids of its calls
        self.rounds = self.empty = self.unfit = 0  #: since the last message that did not come from this machine
        self.forced = False
        self._read = 0

    def read(self, messages: Sequence[Message]) -> "Summary":
        """Read the messages that were added since."""
        for message in messages[self._read :]:
            self._take(message)
        self._read = len(messages)
        return self

    def _take(self, message: Message) -> None:
        self.last, content = message, message.get("content")
        ours = content in (_NOW, _EMPTY) or str(content).startswith(_UNFIT)
        if self._from_hooks and message in self._from_hooks and message["role"] in ("user", "system"):
            return
        if message["role"] in ("user", "system") and not ours:
            self.rounds = self.empty = self.unfit = 0
            self.forced = False
        elif message["role"] == "user":
            self.forced = self.forced or content == _NOW
            self.empty += content == _EMPTY
            self.unfit += content not in (_NOW, _EMPTY)
        if calls := message.get("tool_calls"):
            self.asked, self.results = calls, {}
            self.calls += len(calls)
            self.rounds += 1
        elif message["role"] == "tool":
            self.results[message["tool_call_id"]] = message


def next_move(messages: Sequence[Message], rules: Rules, summary: Summary | None = None) -> Move:
    """Return the next move. A ``summary`` of the conversation so far avoids reading all of it again."""
    now = (summary or Summary()).read(messages)
    last = now.last
    if last["role"] == "assistant":
        if calls := last.get("tool_calls"):
            return Use(tuple(calls), now.calls - len(calls))
        return _answered(now, final(str(last.get("content") or "")), rules)
    if last["role"] == "tool":
        missing = tuple(call for call in now.asked if call["id"] not in now.results)
        if missing:
            # Restored in the middle of a round: its other results are known.
            return Use(missing, now.calls - len(missing))
        for call in now.asked:
            result = str(now.results[call["id"]]["content"])
            if call["function"]["name"] in rules.answering and not result.startswith(ERROR):
                return _answered(now, result, rules)
        if not now.forced and now.rounds >= rules.max_iter:
            return Say({"role": "user", "content": _NOW})
    return Ask(tools=not now.forced)


def final(answer: str) -> str:
    """Return the part of an answer after its last "Final Answer:", else all of it."""
    return answer.rpartition(ANSWER)[2].strip() if ANSWER in answer else answer.strip()


def _answered(now: Summary, text: str, rules: Rules) -> Move:
    if not text:
        if now.empty >= rules.repairs:
            return Fail(f"gave an empty answer {now.empty + 1} times")
        return Say({"role": "user", "content": _EMPTY})
    why = rules.unfit(text) if rules.unfit is not None else None
    if why is None:
        return Done(text)
    if now.unfit >= rules.repairs:
        return Fail(why)
    return Say({"role": "user", "content": f"{_UNFIT}{why}\n\nGive it again, corrected: the JSON alone."})
