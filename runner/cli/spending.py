"""Formats the ledger of a run: what was spent, and on which models."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from runner.cli.stdio import counted, table_of
from runner.core.ledger import costs
from runner.core.prices import cost_in_a_cell, cost_in_words

_DETAILS = {"cached_tokens": "cached", "cache_write_tokens": "cache write", "reasoning_tokens": "reasoning"}
ROWS = 20  #: of the table; ``--json`` has all of them


def format_ledger(ledger: Mapping[str, Any]) -> str:
    """Tokens, cost and tools, where there are any: to be put after the steps."""
    tokens, tools = ledger["prompt_tokens"] + ledger["completion_tokens"], ledger["tools"]
    cached = f" ({ledger['cached_tokens']:,} of them cached)" if ledger["cached_tokens"] else ""
    parts = [f"{tokens:,} tokens{cached}"] if tokens else []
    if cost := cost_in_words(ledger):
        parts.append(cost)
    if any(tools.values()):
        by_tool = ledger.get("by_tool", {})
        words = {"paid": "used", "replayed": "replayed", "in_doubt": "in doubt"}
        shown_tools = [f"{tools[kind]} {word}{_by_tool(by_tool, kind)}" for kind, word in words.items() if tools[kind]]
        parts.append(f"tools: {', '.join(shown_tools)}")
    return "".join(f"; {part}" for part in parts)


def format_progress(ledger: Mapping[str, Any]) -> str:
    """The same of a run in progress, with how many calls of models there were; "" for nothing yet."""
    calls = sum(line["calls"] for line in ledger["by"])
    return (
        f"{counted(calls, 'model call')}{format_ledger(ledger)}" if calls else format_ledger(ledger).removeprefix("; ")
    )


def _by_tool(by_tool: Mapping[str, Mapping[str, int]], kind: str) -> str:
    """Which tools they were, where a run has several; what was replayed says nothing more of them."""
    named = [f"{name} {one[kind]}" for name, one in by_tool.items() if one[kind]]
    if len(by_tool) < 2 or kind == "replayed":
        return ""
    return f" ({', '.join(named[:ROWS])}{', …' if named[ROWS:] else ''})"


def format_unrecorded(calls: Mapping[str, int]) -> str:
    """Calls of models that went past the journal, by host and path."""
    shown = [f"{many} to {place}" for place, many in list(calls.items())[:ROWS]]
    more = [f"{len(calls) - ROWS} more places"] if len(calls) > ROWS else []
    return ", ".join(shown + more)


def table(ledger: Mapping[str, Any]) -> Table | None:
    """The calls of models by branch, task, agent and model; None if there are none."""
    lines = ledger.get("by") or []
    if not lines:
        return None
    heads = ["branch"] if any(line["branch"] != "main" for line in lines) else []
    heads += ["task", *(["agent"] if any(line["agent"] for line in lines) else []), "model"]
    numbers = ["calls", "replayed", "in_doubt", "prompt_tokens", "completion_tokens"]
    numbers += [name for name in _DETAILS if any(line[name] for line in lines)]
    priced = any(line["cost"] is not None for line in lines)
    columns = {name: _DETAILS.get(name, name.replace("_", " ")) for name in (*heads, *numbers, *["cost"] * priced)}
    right = [shown for name, shown in columns.items() if name not in heads]
    found = table_of(columns.values(), right=right, overflow="ellipsis")
    for line in lines[:ROWS]:
        texts = [Text(str(line[head])) for head in heads]
        paid = [cost_in_a_cell(_alone(line), ledger["currency"])] if priced else []
        found.add_row(*texts, *(f"{line[head]:,}" for head in numbers), *paid)
    if len(lines) > ROWS:
        found.add_row(Text(f"… and {len(lines) - ROWS} more, with --json", style="dim"))
    return found


def _alone(line: Mapping[str, Any]) -> dict[str, Any]:
    return costs([(line["model"], line["calls"], line["cost"])])
