"""What an agent does next, as a function of its conversation. Pure: no model, no tools, no clock.

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

REPAIRS = 2
"""`Rules.repairs`, in one attempt."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model; whether it is offered tools."""

    tools: bool


@dataclass(frozen=True, slots=True)
class Use:
    """Use these tools, side by side. ``first`` is the number of the first call among all of the conversation."""

    calls: tuple[Message, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the model something first."""

    message: Message


@dataclass(frozen=True, slots=True)
class Done:
    """This is the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """There will be none."""

    reason: str


Move = Ask | Use | Say | Done | Fail


@dataclass(frozen=True)
class Rules:
    """How long to continue, and what an answer has to be.

    ``repairs`` is how often a model is asked again because its answer is empty or does not fit. ``answering``: tools
    whose result is the answer. ``unfit`` says what is wrong with an answer; None if nothing is.
    """

    max_iter: int = 25
    repairs: int = REPAIRS
    answering: frozenset[str] = frozenset()
    unfit: Callable[[str], str | None] | None = None


def next_move(messages: Sequence[Message], rules: Rules) -> Move:
    """What comes next."""
    last = messages[-1]
    if last["role"] == "assistant":
        if calls := last.get("tool_calls"):
            return Use(tuple(calls), _calls_before(messages, len(messages) - 1))
        return _answered(messages, final(str(last.get("content") or "")), rules)
    since = _since(messages)
    forced = any(message["role"] == "user" and message["content"] == _NOW for message in since)
    if last["role"] == "tool":
        asked = max(i for i, message in enumerate(messages) if message.get("tool_calls"))
        results = {message["tool_call_id"]: message for message in messages[asked + 1 :]}
        missing = tuple(call for call in messages[asked]["tool_calls"] if call["id"] not in results)
        if missing:
            # Restored in the middle of a round: its other results are known.
            done = len(messages[asked]["tool_calls"]) - len(missing)
            return Use(missing, _calls_before(messages, asked) + done)
        for call in messages[asked]["tool_calls"]:
            result = str(results[call["id"]]["content"])
            if call["function"]["name"] in rules.answering and not result.startswith(ERROR):
                return _answered(messages, result, rules)
        if not forced and sum(bool(message.get("tool_calls")) for message in since) >= rules.max_iter:
            return Say({"role": "user", "content": _NOW})
    return Ask(tools=not forced)


def final(answer: str) -> str:
    """What of an answer counts: what comes after its last "Final Answer:", else all of it."""
    return answer.rpartition(ANSWER)[2].strip() if ANSWER in answer else answer.strip()


def _answered(messages: Sequence[Message], text: str, rules: Rules) -> Move:
    told = [str(m["content"]) for m in _since(messages) if m["role"] == "user"]
    if not text:
        empty = sum(one == _EMPTY for one in told)
        if empty >= rules.repairs:
            return Fail(f"gave an empty answer {empty + 1} times")
        return Say({"role": "user", "content": _EMPTY})
    why = rules.unfit(text) if rules.unfit is not None else None
    if why is None:
        return Done(text)
    if sum(one.startswith(_UNFIT) for one in told) >= rules.repairs:
        return Fail(why)
    return Say({"role": "user", "content": f"{_UNFIT}{why}\n\nGive it again, corrected: the JSON alone."})


def _since(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages since the last one that did not come from this machine."""
    for i in range(len(messages) - 1, -1, -1):
        content = messages[i].get("content")
        if messages[i]["role"] in ("user", "system") and not (
            content in (_NOW, _EMPTY) or str(content).startswith(_UNFIT)
        ):
            return messages[i:]
    return messages


def _calls_before(messages: Sequence[Message], end: int) -> int:
    return sum(len(message.get("tool_calls") or ()) for message in messages[:end])
