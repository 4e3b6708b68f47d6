"""The ledger: which steps were paid for, replayed, or are in doubt. Pure.

A step is a person's own, a call of a model, or a tool's. What is asked of models inside a person's step stands for it:
nothing is counted twice.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from runner.core.prices import NO_PRICES, Prices
from runner.core.prices import Usage as Usage

Kind = Literal["step", "model", "tool"]


class AccountKey(NamedTuple):
    """What a step is counted under: its kind; for a call of a model also the agent and the model; for a tool its name,
    where a model's stands, which earlier versions leave empty."""

    kind: Kind = "step"
    agent: str = ""
    model: str = ""


STEP = AccountKey()

NO_TOKENS = Usage()


def usage_in(answer: Mapping[str, Any]) -> Usage:
    """The tokens of a recorded answer."""
    return Usage(*answer["usage"], *answer.get("details", ()))


class Counters(Counter[AccountKey]):
    """Counters by account key; of replayed calls also the tokens that they had taken.

    ``passed``: how many records of its own journal a task passed meanwhile, whether they are in the account or not.
    """

    __slots__ = ("passed", "tokens")

    def __init__(self, *given: Any) -> None:
        self.tokens: defaultdict[AccountKey, int] = defaultdict(int)
        self.passed = 0
        if given:
            super().__init__(*given)

    def served(self, entry: AccountKey, usage: Usage) -> None:
        """One more, from the journal."""
        self[entry] += 1
        self.tokens[entry] += usage.prompt_tokens + usage.completion_tokens

    def add(self, other: "Counters") -> None:
        """As many more."""
        self.update(other)
        for entry, many in other.tokens.items():
            self.tokens[entry] += many

    def beyond(self, other: "Counters") -> "Counters":
        """What is more in here than in another."""
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
        """As the scripts take it: a JSON list of kind, agent, model, how many, their tokens; "" for nothing."""
        return self.with_one_more(None)

    def with_one_more(self, entry: AccountKey | None) -> str:
        """The same, if there were one more with this key."""
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
    """The text of counters with so many such steps, and no others."""
    return f"[{line_of(entry, many, tokens)}]" if many > 0 else ""


@lru_cache(maxsize=256)
def reserved_text(entry: AccountKey | None) -> str:
    """For which step a note is reserved, as the scripts take it: "1" for an author's own, "" for none."""
    return "" if entry is None else "1" if entry == STEP else json.dumps(entry, ensure_ascii=False)


@lru_cache(maxsize=256)
def line_of(entry: AccountKey, many: int, tokens: int) -> str:
    """One line of that text."""
    return f"{_beginning(entry)}, {many}, {tokens}]"


@lru_cache(maxsize=256)
def _beginning(entry: AccountKey) -> str:
    return json.dumps(entry, ensure_ascii=False).removesuffix("]")


def counters_text(count: Counters | int) -> str:
    """The text of counters, or of a number of an author's steps."""
    if not count:
        return ""
    return count.text() if isinstance(count, Counters) else Counters({STEP: count}).text()


class NextStep(dict[AccountKey, AccountKey | None]):
    """Which step is about to begin when one was recorded: the one that began after its like the last time.

    Who records a step may reserve the note of that one with it, which then begins without a word to the store.
    None where nothing began soon. A dict, as each task makes one.
    """

    recorded: AccountKey | None = STEP  #: the step since whose record nothing began; set by who records one

    def begins(self, entry: AccountKey, *, soon: bool) -> None:
        """A step begins; ``soon``: at once after what was recorded before."""
        if self.recorded is not None:
            self[self.recorded] = entry if soon else None
            self.recorded = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The calls of one model by one agent in one task of one branch; their tokens as in `Usage`."""

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
        """As ``--json`` prints it; the cost where its model's price is known."""
        return {**asdict(self), "cost": self.cost(prices)}

    def cost(self, prices: Prices) -> float | None:
        """What the calls that were paid for cost; None where the price, or what they took, is not known."""
        usage = Usage(*(getattr(self, name) for name in Usage._fields))
        return prices.cost(self.model, usage, self.calls) if any(usage) or self.calls <= 0 else None


def spent(lines: Iterable[LedgerRow], prices: Prices) -> dict[str, Any]:
    """What they cost, as `costs` says it, and in which money. What a stand-in answered has no cost to be known."""
    found = costs((line.model, line.calls, line.cost(prices)) for line in lines)
    if prices is NO_PRICES:
        found["unpriced"] = {}
    return {**found, "currency": prices.currency}


def costs(calls: Iterable[tuple[str, int, float | None]]) -> dict[str, Any]:
    """What calls cost together, given by model, how many, and their cost. A part is never told as the whole.

    ``cost`` is None unless that of all is known, and there are any; ``cost_known`` is the sum of what is known, and
    ``unpriced`` says of how many calls, by model, it is not.
    """
    found = list(calls)
    known = round(sum(cost for _, _, cost in found if cost is not None), 9)
    unpriced: Counter[str] = Counter()
    for model, many, cost in found:
        if cost is None:
            unpriced[model] += many
    return {"cost": known if found and not unpriced else None, "cost_known": known, "unpriced": dict(unpriced)}


def summed(lines: Iterable[LedgerRow], prices: Prices) -> dict[str, Any]:
    """Several lines in one."""
    found = list(lines)
    names = ("calls", "replayed", "in_doubt", *Usage._fields, "replayed_tokens")
    return {name: sum(getattr(line, name) for line in found) for name in names} | spent(found, prices)


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call of a model that came to its end: the model asked for, its tokens, and whether the journal served it."""

    model: str
    usage: Usage
    replayed: bool


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who makes the calls in this context: the agent's role, for the ledger.

    ``per_minute``: how many of them may be made in a minute. ``announced``: it emits its calls on the event bus
    itself. ``heard`` is called with each call that ended, ``leaving`` with each that is about to be sent.
    """

    agent: str = ""
    announced: bool = False
    on_result: Callable[[CallResult], None] | None = None
    leaving: Callable[[], None] | None = None
    per_minute: int | None = None


UNATTRIBUTED = CallContext()

caller: ContextVar[CallContext] = ContextVar("runner_caller", default=UNATTRIBUTED)
"""Who makes the calls in this context."""
