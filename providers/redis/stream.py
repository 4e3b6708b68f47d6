"""Events as entries of a run's stream, in a short form, because a run may have more bytes of events than of outputs.

Each entry has the same fields, so that Redis keeps their names once for a block of entries: the number ``s``, the type
``t``, branch ``b``, task ``k``, parent ``p``, started ``e``, cause ``c``, and the rest ``r`` as a JSON list: for a type
of `SHORT` with just its fields, their values; else names and values.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MAIN, NO_BRANCH = "", "|"

SHORT: dict[str, tuple[str, ...]] = {
    "task_started": ("attempt", "worker", "token"),
    "task_completed": ("commit_seq",),
    "agent_execution_started": (),
    "agent_execution_completed": (),
    "llm_call_started": ("model", "agent"),
    "llm_call_completed": ("model", "agent", "prompt_tokens", "completion_tokens"),
    "tool_usage_started": (),
    "tool_usage_finished": (),
    "method_execution_started": (),
    "method_execution_finished": (),
}
"""Types that are said in short, by one character that no type has, with which fields. Their order stays as it is."""

_LONG = {chr(i): (kind, names) for i, (kind, names) in enumerate(SHORT.items(), 1)}


CALLED = next(code for code, (kind, _) in _LONG.items() if kind == "llm_call_completed")
"""What says in short that a model answered."""


@lru_cache(maxsize=256)
def texts(*texts: str) -> str:
    """Texts as JSON has them in a list."""
    return ",".join(map(json.dumps, texts))


def lua() -> str:
    """`SHORT`, as a function of the scripts: what a type is said by, and the names of its fields."""
    rows = (
        f'if kind=="{kind}" then return "\\{ord(code)}","{"".join(f"{name}," for name in names)}" end'
        for code, (kind, names) in _LONG.items()
    )
    return f"local function in_short(kind) {' '.join(rows)} end"


def fields_of(entry: Mapping[str, str]) -> dict[str, str]:
    """An entry in long: ``seq``, ``type``, ``parent``, ``started``, ``cause``, and what else it tells."""
    if "s" not in entry:
        return dict(entry)  # by an older version
    kind, names = _LONG.get(entry["t"], (entry["t"], ()))
    found = {"seq": entry["s"], "type": kind}
    found |= {"parent": entry["p"], "started": entry["e"], "cause": entry["c"]}
    if entry["b"] != NO_BRANCH:
        found["branch"] = entry["b"] or "main"
    if entry["k"]:
        found["task"] = entry["k"]
    rest = [str(one) for one in json.loads(entry["r"] or "[]")]
    pairs = zip(names, rest, strict=True) if names else zip(rest[::2], rest[1::2], strict=True)
    return found | dict(pairs)


def entries_of(answer: Any) -> list[Any]:
    """The entries that XREAD gave: RESP3 names the streams, and nests their entries once more than RESP2."""
    streams = answer.values() if isinstance(answer, dict) else [entry[1] for entry in answer or []]
    nested = [one[0] if one and one[0] and isinstance(one[0][0], list | tuple) else one for one in streams]
    return [entry for one in nested for entry in one]
