"""What models cost: the list prices of the `genai-prices` package, and what ``RUNNER_PRICES`` says instead of them.

``RUNNER_PRICES`` is JSON, or the name of a file with it: by the model's name, with or without its provider, or a
pattern, the prices of a million tokens. ``{"gpt-4o-mini": [0.15, 0.60], "claude-*": {"prompt": 3, "completion": 15,
"cached": 0.3, "cache_write": 3.75}, "currency": "EUR"}``.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import UsageError

VARIABLE = "RUNNER_PRICES"
CURRENCY = "currency"
USD = "USD"
_VENDORS = ("openai", "aws")
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}


class Usage(NamedTuple):
    """The tokens of a call, as the model's service counted them.

    ``prompt_tokens`` are all that were sent: those of them that the service had cached, and those that it wrote into
    its cache (for an hour, some of these), stand beside. ``completion_tokens`` are all that came back, with those of
    its reasoning.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def details(self) -> tuple[int, ...]:
        """What a service does not always tell; () where it told nothing of it."""
        return tuple(self[2:]) if any(self[2:]) else ()

    def told(self) -> dict[str, int]:
        """By name, the details where there are any."""
        return {name: count for i, (name, count) in enumerate(self._asdict().items()) if i < 2 or count}


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of a million tokens. What is cached, or written to a cache, costs as any prompt where nobody says else."""

    prompt: float
    completion: float
    cached: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def of(self, usage: Usage) -> float:
        """What these tokens cost."""
        plain, cached, written, long = _parts(usage)
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
    """Prices by model. ``at`` is when the calls were made, of which the list prices may depend."""

    by_model: Mapping[str, Price | None] = field(default_factory=dict)
    currency: str = USD
    at: datetime | None = None

    def cost(self, model: str, usage: Usage, calls: int) -> float | None:
        """What so many calls of a model cost that took these tokens together; None where its price is not known."""
        if calls <= 0:
            return 0.0
        names = (model, model.partition("/")[2])
        named = next((name for name in names if name in self.by_model), None)
        fitting = [one for one in self.by_model if any(name and fnmatchcase(name, one) for name in names)]
        if named is not None or fitting:
            own = self.by_model[named if named is not None else max(fitting, key=len)]
            return None if own is None else round(own.of(usage), 9)
        return _listed(model, usage, calls, self.at) if self.currency == USD else None


NO_PRICES = Prices({"*": None})
"""Nothing costs anything that anybody knows of: what stands in for models."""


def configured(at_ms: int | None = None) -> Prices:
    """The prices that hold, at a time. Raises `UsageError` where the environment gives something that is none."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return Prices(at=at)
    try:
        found = json.loads(given if given.startswith("{") else Path(given).read_text("utf-8"))
        currency = found.pop(CURRENCY, USD)
        if not (isinstance(currency, str) and currency.isalpha()):
            raise ValueError
        return Prices({str(model): _price(price) for model, price in found.items()}, currency.upper(), at)
    except OSError as error:
        raise UsageError(f"{VARIABLE} names a file that cannot be read: {given}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'{VARIABLE} must be JSON like {{"MODEL": [0.15, 0.60]}}, prices of a million tokens of prompt and of '
            'answer, or like {"MODEL": {"prompt": 3, "completion": 15, "cached": 0.3, "cache_write": 3.75}}, or the '
            "name of a file with it"
        ) from None


def money(amount: float, currency: str = USD) -> str:
    """An amount as a person reads it: three digits that tell something, two behind the point at least."""
    places = 2 if amount == 0 or amount >= 1 else 2 - math.floor(math.log10(amount))
    text = f"{amount:,.{places}f}"
    return f"{_SIGNS[currency]}{text}" if currency in _SIGNS else f"{text} {currency}"


def _price(given: Any) -> Price | None:
    if given is None:
        return None
    if isinstance(given, list) and len(given) != 2:
        raise ValueError
    price = Price(**given) if isinstance(given, dict) else Price(*given)
    for name in Price.__slots__:
        value = getattr(price, name)
        if value is not None and not (0 <= float(value) < math.inf):
            raise ValueError
    return price


def _parts(usage: Usage) -> tuple[int, int, int, int]:
    """A prompt in parts that do not overlap: the rest, what was cached, what was written, what of that for an hour."""
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    return max(usage.prompt_tokens - cached - written, 0), cached, written, min(usage.cache_write_1h_tokens, written)


def _listed(model: str, usage: Usage, calls: int, at: datetime | None) -> float | None:
    """By the list. Some models cost more from a length of the prompt on: what counts is that of the average call."""
    import genai_prices  # a large table: loaded where there is something to price

    plain, cached, written, long = (part / calls for part in _parts(usage))
    average = genai_prices.Usage(
        input_tokens=plain + cached + written,
        cache_read_tokens=cached or None,
        cache_write_tokens=written or None,
        cache_write_1h_tokens=long or None,
        output_tokens=usage.completion_tokens / calls,
    )
    provider, _, name = model.rpartition("/")
    # As it was asked for; else with its provider in front; else under a vendor whose names are not told by themselves.
    for ref, of in (
        (model, None),
        (name, provider.rpartition("/")[2] or None),
        (name, None),
        *((name, one) for one in _VENDORS),
    ):
        try:
            found = genai_prices.calc_price(average, ref, provider_id=of, genai_request_timestamp=at)
        except LookupError:
            continue
        return round(float(found.total_price) * calls, 9)
    return None
