"""The prices that hold: the list of the `genai-prices` package, and what ``RUNNER_PRICES`` says instead of it.

``RUNNER_PRICES`` is JSON, or the name of a file with it: by the model's name, with or without its provider, or a
pattern, the prices of a million tokens. ``{"gpt-4o-mini": [0.15, 0.60], "claude-*": {"prompt": 3, "completion": 15,
"cached": 0.3, "cache_write": 3.75}, "currency": "EUR"}``.
"""

import json
import math
import os
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from runner.core.errors import UsageError
from runner.core.prices import USD, Price, Prices, Usage, parts

VARIABLE = "RUNNER_PRICES"
CURRENCY = "currency"
_VENDORS = ("openai", "aws")


def configured(at_ms: int | None = None) -> Prices:
    """The prices that hold, at a time. Raises `UsageError` where the environment gives something that is none."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return Prices(listed=partial(_listed, at=at))
    try:
        if given.startswith("{"):
            by_model, currency = _read(given)
        else:
            about = Path(given).stat()
            by_model, currency = _read_file(given, (about.st_ino, about.st_mtime_ns, about.st_size))
        return Prices(by_model, currency, partial(_listed, at=at))
    except OSError as error:
        raise UsageError(f"{VARIABLE} names a file that cannot be read: {given}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'{VARIABLE} must be JSON like {{"MODEL": [0.15, 0.60]}}, prices per million tokens of prompt and of '
            'answer, or like {"MODEL": {"prompt": 3, "completion": 15, "cached": 0.3, "cache_write": 3.75}}, or the '
            "name of a file with it"
        ) from None


@lru_cache(maxsize=1)  # each result of a batch has a ledger
def _read(text: str) -> tuple[dict[str, Price | None], str]:
    found = json.loads(text)
    currency = found.pop(CURRENCY, USD)
    if not (isinstance(currency, str) and currency.isalpha()):
        raise ValueError
    return {str(model): _price(price) for model, price in found.items()}, currency.upper()


@lru_cache(maxsize=1)
def _read_file(name: str, identity: tuple[int, ...]) -> tuple[dict[str, Price | None], str]:  # noqa: ARG001 - a changed one is read again
    return _read(Path(name).read_text("utf-8"))


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


def _listed(model: str, usage: Usage, calls: int, at: datetime | None) -> float | None:
    """By the list. Some models cost more from a length of the prompt on: what counts is that of the average call."""
    import genai_prices  # a large table: loaded where there is something to price

    plain, cached, written, long = (part / calls for part in parts(usage))
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
