"""What a row of the matrix came to, by an account that the product does not keep: that of its models, its tools and
whoever kills. The product's ledger is held against it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """What was seen of a program, alone or while it was killed."""

    asked: Counter[bytes]
    """Each request, whole, and how often it came."""
    used: Counter[str]
    """Each thing that was looked at, and how often."""
    hit: Counter[bytes] = Counter()
    """How often the process was killed while this request was in flight."""
    dead: Counter[str] = Counter()
    """How often it was killed while it looked at this thing."""
    recorded: int = 0
    """How often it was killed just after something had been recorded."""

    @property
    def kills(self) -> int:
        return self.hit.total() + self.dead.total() + self.recorded


def wrong(
    alone: Seen, seen: Seen, ledger: Mapping[str, Any], *, moments: int, ends: int, one_by_one: bool
) -> list[str]:
    """What is not as it has to be, in words.

    ``ledger`` is the run's. Each request is killed at so many ``moments``; ``ends`` is 1 if the last answer is a use
    of a tool. If uses are not ``one_by_one``, a kill takes those beside it along.
    """
    calls, uses, tools = alone.asked.total(), alone.used.total(), ledger["tools"]
    again = seen.used - alone.used
    checks = {
        f"{calls} requests are killed {moments} times each, these {[*seen.hit.values()]}": seen.hit
        == Counter(dict.fromkeys(alone.asked, moments)),
        f"the models were asked {_off(seen.asked, alone.asked + seen.hit)}": seen.asked == alone.asked + seen.hit,
        f"things were looked at {_off(seen.used, alone.used + seen.dead)}": seen.used == alone.used + seen.dead
        if one_by_one
        else seen.used >= alone.used + seen.dead,
        f"{uses} uses are killed once each, these {dict(seen.dead)}": seen.dead == alone.used,
        f"{seen.recorded} kills where something had been recorded": seen.recorded == calls + uses + ends
        or not one_by_one,
        f"the ledger has {ledger['paid']} calls paid": ledger["paid"] == calls,
        f"the ledger has {ledger['in_doubt']} calls in doubt": ledger["in_doubt"] == seen.hit.total(),
        f"the ledger has {tools['paid']} uses paid": tools["paid"] == uses + ends,
        f"the ledger has {tools['in_doubt']} uses in doubt": tools["in_doubt"] == again.total(),
    }
    return [what for what, right in checks.items() if not right]


def _off(found: Counter[Any], due: Counter[Any]) -> str:
    return f"{(found - due).total()} times too often, {(due - found).total()} times too seldom"
