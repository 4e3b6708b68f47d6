"""What models cost, where a person says so: ``RUNNER_PRICES``, as JSON or the name of a file with it.

``{"gpt-4o-mini": [0.15, 0.60], "claude-*": [3, 15]}``: by the model's name, with or without its provider, or a pattern;
the prices of a million tokens of prompt and of answer, in whatever money.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from runner.errors import UsageError

VARIABLE = "RUNNER_PRICES"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model."""

    by_model: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, model: str) -> tuple[float, float] | None:
        """Those of a model: by its name, else by the longest pattern that fits it."""
        names = (model, model.partition("/")[2])
        for name in names:
            if name in self.by_model:
                return self.by_model[name]
        fitting = [one for one in self.by_model if any(name and fnmatchcase(name, one) for name in names)]
        return self.by_model[max(fitting, key=len)] if fitting else None


def configured() -> Prices:
    """The prices that the environment gives. Raises `UsageError` where it gives something else."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return Prices()
    try:
        found = json.loads(given if given.startswith("{") else Path(given).read_text("utf-8"))
        return Prices({str(model): _pair(price) for model, price in found.items()})
    except OSError as error:
        raise UsageError(f"{VARIABLE} names a file that cannot be read: {given}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'{VARIABLE} must be JSON like {{"MODEL": [0.15, 0.60]}}, prices of a million tokens of prompt and of '
            "answer, or the name of a file with it"
        ) from None


def _pair(price: object) -> tuple[float, float]:
    if not isinstance(price, list) or len(price) != 2:
        raise ValueError
    prompt, completion = (float(one) for one in price)
    if not (0 <= prompt < float("inf") and 0 <= completion < float("inf")):
        raise ValueError
    return prompt, completion
