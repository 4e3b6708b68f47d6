"""The tasks of a branch, as rows of ``--json`` and as a table."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from runner.cli.stdio import table_of
from runner.core.ledger import costs
from runner.core.plan import Plan
from runner.core.prices import cost_in_a_cell
from runner.providers.records import Committed, InFlight


def rows(
    plan: Plan,
    committed: Mapping[str, Committed],
    flying: Mapping[str, InFlight],
    branch: str,
    ledger: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """A row for each task of a branch. Times are in milliseconds; what was not recorded is left out.

    ``attempts`` were begun so far, ``attempt`` is the one that runs or comes next. ``ms`` is how long the last one
    took; ``tokens`` and ``cost`` are of all of them, the cost told as the ledger tells it.
    """
    spent = _spent(ledger)
    found = []
    for task in plan.shown([*sorted(committed, key=lambda key: committed[key].seq), *sorted(flying)]):
        if task.key in committed:
            row = _done(committed[task.key])
        elif task.key in flying:
            row = _in_flight(flying[task.key])
        else:
            row = {"state": "waiting"}
        on = committed[task.key].branch if task.key in committed else branch
        found.append({"task": task.key, **row, **spent.get((on, task.key), {})})
    return found


def table(found: Sequence[Mapping[str, Any]], currency: str, now: int) -> Table:
    """Return the tasks as a table for people."""
    heads = ["task", "state", "attempts", "started", "took"]
    heads += ["tokens"] if any(row.get("tokens") is not None for row in found) else []
    heads += ["cost"] if any(row.get("cost") is not None or row.get("cost_known") for row in found) else []
    shown = table_of([*heads, "where"], right=("attempts", "took", "tokens", "cost"))
    for row in found:
        row = {
            "task": row["task"],
            "state": row["state"],
            "attempts": row.get("attempts") or "",
            "started": _clock(row.get("started_at"), now),
            "took": _took(row, now),
            "tokens": f"{row.get('tokens') or 0:,}",
            "cost": cost_in_a_cell(row, currency),
        }
        where = Text(str(row.get("error") or row.get("worker") or ""))
        shown.add_row(*(Text(str(row[head])) for head in heads), where)
    return shown


def _done(output: Committed) -> dict[str, Any]:
    known = {name: getattr(output, name) for name in ("attempts", "started_at", "ended_at", "ms")}
    known["worker"] = output.worker or None
    return {"state": "committed", "seq": output.seq} | {k: value for k, value in known.items() if value is not None}


def _in_flight(one: InFlight) -> dict[str, Any]:
    row: dict[str, Any] = {"state": one.state, "attempt": one.attempt, "worker": one.worker, "error": one.error}
    if one.state in ("asked", "failed"):  # the next one begins with the answer, or a resume
        row["attempt"] = one.attempts
    known = {"started_at": one.started_at, "ended_at": one.ended_at, "traceback": one.trace}
    return row | {"attempts": one.attempts} | {name: value for name, value in known.items() if value}


def _spent(ledger: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the calls of models came to, by branch and task."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in ledger["by"]:
        found[line["branch"], line["task"]].append(line)
    return {task: _sum(lines, bool(ledger["unpriced"])) for task, lines in found.items()}


def _sum(lines: Sequence[Mapping[str, Any]], may_be_unknown: bool) -> dict[str, Any]:
    tokens = sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines)
    spent = costs((line["model"], line["calls"], line["cost"]) for line in lines)
    return {"tokens": tokens, **spent, **({} if may_be_unknown else {"unpriced": {}})}


def _clock(ms: int | None, now: int) -> str:
    if ms is None:
        return ""
    at, today = time.localtime(ms / 1000), time.localtime(now / 1000)
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", at)


def _took(row: Mapping[str, Any], now: int) -> str:
    ended = row.get("ended_at") or (now if row["state"] == "running" else None)
    if row.get("started_at") is None or ended is None:
        return ""
    return f"{max(ended - row['started_at'], 0) / 1000:.1f} s"
