"""The cost of model calls: kinds of tokens, prices per million of them, amounts of money."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

USD = "USD"
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}


class Usage(NamedTuple):
    """The tokens of a call, as the model's service counted them.

    ``prompt_tokens`` include those read from the service's cache and written to it, which are also listed separately;
    ``completion_tokens`` include reasoning.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def details(self) -> tuple[int, ...]:
        """The optional counts; () if the service reported none of them."""
        return tuple(self[2:]) if any(self[2:]) else ()

    def by_name(self) -> dict[str, int]:
        """Return the counts by name, with the optional ones if there are any."""
        return {name: count for i, (name, count) in enumerate(self._asdict().items()) if i < 2 or count}


@dataclass(frozen=True, slots=True)
class Price:
    """Prices per million tokens. By default, tokens from a cache, or written to it, cost what other prompt ones do."""

    prompt: float
    completion: float
    cached: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def of(self, usage: Usage) -> float:
        """Return the cost of these tokens."""
        plain, cached, written, long = parts(usage)
        write = self.prompt if self.cache_write is None else self.cache_write
        return (
            plain * self.prompt
            + cached * (self.prompt if self.cached is None else self.cached)
            + (written - long) * write
            + long * (write if self.cache_write_1h is None else self.cache_write_1h)
            + usage.completion_tokens * self.completion
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model. ``listed`` returns the cost of other models in dollars: given the model, tokens and calls."""

    by_model: Mapping[str, Price | None] = field(default_factory=dict)
    currency: str = USD
    listed: Callable[[str, Usage, int], float | None] = lambda *_: None

    def cost(self, model: str, usage: Usage, calls: int) -> float | None:
        """Return the cost of so many calls of a model, with these tokens in total; None if the price is unknown."""
        if calls <= 0:
            return 0.0
        names = (model, model.partition("/")[2])
        named = next((name for name in names if name in self.by_model), None)
        fitting = [one for one in self.by_model if any(name and fnmatchcase(name, one) for name in names)]
        if named is not None or fitting:
            own = self.by_model[named if named is not None else max(fitting, key=len)]
            return None if own is None else round(own.of(usage), 9)
        return self.listed(model, usage, calls) if self.currency == USD else None


NO_PRICES = Prices({"*": None})
"""Nothing costs anything that anybody knows of: what stands in for models."""


def money(amount: float, currency: str = USD) -> str:
    """Format an amount: three significant digits, and at least two decimals."""
    places = 2 if amount == 0 or amount >= 1 else 2 - math.floor(math.log10(amount))
    text = f"{amount:,.{places}f}"
    return f"{_SIGNS[currency]}{text}" if currency in _SIGNS else f"{text} {currency}"


def cost_in_words(spent: Mapping[str, Any]) -> str:
    """Format the cost of calls; "" if there is none. An incomplete sum is marked as one."""
    if spent["cost"] is not None:
        return f"cost {money(spent['cost'], spent['currency'])}"
    if not spent["unpriced"]:
        return ""
    calls = [f"{many:,} call{'' if many == 1 else 's'} of {model}" for model, many in spent["unpriced"].items()]
    more = f" and {len(calls) - 3} more models" if len(calls) > 3 else ""
    of = ", ".join(calls[:3]) + more
    if not spent["cost_known"]:
        return f"cost not known ({of})"
    return f"cost at least {money(spent['cost_known'], spent['currency'])} (not known: {of})"


def cost_in_a_cell(spent: Mapping[str, Any], currency: str) -> str:
    """Return the cost as a table cell; "" if no model was called."""
    if spent.get("cost") is not None:
        return money(spent["cost"], currency)
    if not spent.get("unpriced"):
        return ""
    return f"≥ {money(spent['cost_known'], currency)}" if spent["cost_known"] else "not known"


def parts(usage: Usage) -> tuple[int, int, int, int]:
    """Split the prompt tokens into uncached ones, those read from the cache, written to it, and written for an hour."""
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    return max(usage.prompt_tokens - cached - written, 0), cached, written, min(usage.cache_write_1h_tokens, written)
