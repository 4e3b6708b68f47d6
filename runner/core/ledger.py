"""The ledger: which steps were paid for, replayed, or are in doubt. Pure.

A step is an author's own, a model call, or a tool call. Model calls inside an author's step are counted instead of the
step: nothing is counted twice.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple

from runner.core.prices import NO_PRICES, Prices
from runner.core.prices import Usage as Usage

Kind = Literal["step", "model", "tool"]


class AccountKey(NamedTuple):
    """The key under which steps are counted: their kind; for a model call also the agent and the model.

    For a tool call, its name is in the model's field, which earlier versions leave empty.
    """

    kind: Kind = "step"
    agent: str = ""
    model: str = ""


STEP = AccountKey()


@lru_cache(maxsize=256)
def model_key(agent: str, model: str) -> AccountKey:
    """Return the key of a model's calls by an agent."""
    return AccountKey("model", agent, model)


NO_TOKENS = Usage()


def usage_in(answer: Mapping[str, Any]) -> Usage:
    """Return the tokens of a recorded answer."""
    return Usage(*answer["usage"], *answer.get("details", ()))


class Counters(Counter[AccountKey]):
    """Counters by account key, with the tokens of replayed calls. ``passed``: the journal's records passed so far."""

    __slots__ = ("passed", "tokens")

    def __init__(self, *given: Any) -> None:
        self.tokens: defaultdict[AccountKey, int] = defaultdict(int)
        self.passed = 0
        if given:
            super().__init__(*given)

    def served(self, entry: AccountKey, usage: Usage) -> None:
        """Count one more replayed step."""
        self[entry] += 1
        self.tokens[entry] += usage.prompt_tokens + usage.completion_tokens

    def add(self, other: "Counters") -> None:
        """Add other counters."""
        self.update(other)
        for entry, many in other.tokens.items():
            self.tokens[entry] += many

    def beyond(self, other: "Counters") -> "Counters":
        """Return the difference from other counters."""
        found = Counters()
        for entry, many in self.items():
            if many > other[entry]:
                found[entry] = many - other[entry]
                found.tokens[entry] = max(self.tokens[entry] - other.tokens[entry], 0)
        return found

    @classmethod
    def read(cls, text: str) -> "Counters":
        """The inverse of `text`."""
        found = cls()
        for kind, agent, model, many, tokens in json.loads(text) if text else ():
            entry = AccountKey(kind, agent, model)
            found[entry], found.tokens[entry] = many, tokens
        return found

    def text(self) -> str:
        """Return the form for scripts: a JSON list of kind, agent, model, count and tokens; "" for nothing."""
        return self.with_one_more(None)

    def with_one_more(self, entry: AccountKey | None) -> str:
        """Return the text with one more step of this key."""
        if len(self) == 1:  # as of most tasks
            for one, many in self.items():
                if entry is None or entry == one:
                    return text_of_one(one, many if entry is None else many + 1, self.tokens.get(one, 0))
        if entry is not None:
            self[entry] += 1
        found = ""
        for one, many in self.items():
            if many > 0:
                found += f"{', ' if found else '['}{_beginning(one)}, {many}, {self.tokens[one]}]"
        if entry is not None:
            self[entry] -= 1
        return f"{found}]" if found else ""


@lru_cache(maxsize=256)
def text_of_one(entry: AccountKey, many: int = 1, tokens: int = 0) -> str:
    """Return the text of counters with only so many steps of one key."""
    return f"[{line_of(entry, many, tokens)}]" if many > 0 else ""


@lru_cache(maxsize=256)
def reserved_text(entry: AccountKey | None) -> str:
    """Return the key of a reserved note in the form for scripts: "1" for an author's own step, "" for none."""
    return "" if entry is None else "1" if entry == STEP else json.dumps(entry, ensure_ascii=False)


@lru_cache(maxsize=256)
def ledger_field(branch: str, task: str, agent: str, model: str) -> str:
    """Return the field of the ledger for a model's calls by an agent in a task, as the scripts write it."""
    texts = ",".join(map(encode_basestring, (branch, task, agent, model)))
    return f"[{texts}]".replace("/", "\\/").replace("\x7f", "\\u007f")


@lru_cache(maxsize=256)
def line_of(entry: AccountKey, many: int, tokens: int) -> str:
    """Return one row of that text."""
    return f"{_beginning(entry)}, {many}, {tokens}]"


@lru_cache(maxsize=256)
def _beginning(entry: AccountKey) -> str:
    return json.dumps(entry, ensure_ascii=False).removesuffix("]")


def counters_text(count: Counters | int) -> str:
    """Return the text of counters, or of a number of an author's steps."""
    if not count:
        return ""
    return count.text() if isinstance(count, Counters) else Counters({STEP: count}).text()


class NextStep(dict[AccountKey, AccountKey | None]):
    """Predicts which step follows a recorded one: the one that followed a step of the same kind last time.

    The writer of a record may reserve the note of the next step in the same write, so that it begins without a command.
    None if no step followed soon. A dict, since each task creates one.
    """

    recorded: AccountKey | None = STEP  #: the step since whose record nothing began; set by who records one

    def begins(self, entry: AccountKey, *, soon: bool) -> None:
        """A step begins; ``soon``: right after the latest record."""
        if self.recorded is not None:
            if soon:
                self[self.recorded] = entry
            else:
                self.pop(self.recorded, None)
            self.recorded = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The calls of one model by one agent in one task of one branch, with their tokens as in `Usage`."""

    branch: str
    task: str
    agent: str
    model: str
    calls: int
    replayed: int
    in_doubt: int
    prompt_tokens: int
    completion_tokens: int
    replayed_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    def to_dict(self, prices: Prices) -> dict[str, Any]:
        """Return it as ``--json`` prints it, with the cost if the model's price is known."""
        return {**asdict(self), "cost": self.cost(prices)}

    def cost(self, prices: Prices) -> float | None:
        """Return the cost of the paid calls; None if the price or the tokens are unknown."""
        usage = Usage(*(getattr(self, name) for name in Usage._fields))
        return prices.cost(self.model, usage, self.calls) if any(usage) or self.calls <= 0 else None


def spent(lines: Iterable[LedgerRow], prices: Prices) -> dict[str, Any]:
    """Return the cost of these rows, as `costs` does, and the currency. Answers of a stub model have no cost."""
    found = costs([(line.model, line.calls, line.cost(prices)) for line in lines])
    if prices is NO_PRICES:
        found["unpriced"] = {}
    return {**found, "currency": prices.currency}


def costs(calls: Iterable[tuple[str, int, float | None]]) -> dict[str, Any]:
    """Add up the costs of calls, given by model, count and cost. A part is never presented as the whole.

    ``cost`` is None unless all costs are known, and there are any; ``cost_known`` is the sum of the known ones, and
    ``unpriced`` is the number of calls with unknown cost, by model.
    """
    found = list(calls)
    known = round(sum([cost for _, _, cost in found if cost is not None]), 9)
    unpriced: dict[str, int] = {}
    for model, many, cost in found:
        if cost is None:
            unpriced[model] = unpriced.get(model, 0) + many
    return {"cost": known if found and not unpriced else None, "cost_known": known, "unpriced": unpriced}


def summed(lines: Iterable[LedgerRow], prices: Prices) -> dict[str, Any]:
    """Add up rows."""
    found = list(lines)
    names = ("calls", "replayed", "in_doubt", *Usage._fields, "replayed_tokens")
    return {name: sum(getattr(line, name) for line in found) for name in names} | spent(found, prices)


@dataclass(frozen=True, slots=True)
class CallResult:
    """A finished model call: the requested model, its tokens, and whether it was replayed."""

    model: str
    usage: Usage
    replayed: bool


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller of the model calls in this context: the agent's role, for the ledger.

    Attributes:
        per_minute: the rate limit.
        announced: whether the caller emits events for its calls itself.
        on_result: called with each finished call.
        leaving: called with each call that is about to be sent.
    """

    agent: str = ""
    announced: bool = False
    on_result: Callable[[CallResult], None] | None = None
    leaving: Callable[[], None] | None = None
    per_minute: int | None = None


UNATTRIBUTED = CallContext()

caller: ContextVar[CallContext] = ContextVar("runner_caller", default=UNATTRIBUTED)
"""Who makes the calls in this context."""
