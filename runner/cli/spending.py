"""How the account of a run is put in words: what was spent, and on which models."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

ROWS = 20  #: of the table; ``--json`` has all of them


def in_words(ledger: Mapping[str, Any]) -> str:
    """Tokens, cost and tools, where there are any: to be put after the steps."""
    tokens, tools, cost = ledger["prompt_tokens"] + ledger["completion_tokens"], ledger["tools"], ledger.get("cost")
    parts = [f"{tokens:,} tokens"] if tokens else []
    if cost is not None:
        parts.append(f"cost {cost:.4g}")
    if any(tools.values()):
        text = f"tools: {tools['paid']} used"
        text += f", {tools['replayed']} replayed" if tools["replayed"] else ""
        parts.append(text + (f", {tools['in_doubt']} in doubt" if tools["in_doubt"] else ""))
    return "".join(f"; {part}" for part in parts)


def table(ledger: Mapping[str, Any]) -> Table | None:
    """The calls of models by branch, task, agent and model; None if there are none."""
    lines = ledger.get("by") or []
    if not lines:
        return None
    found = Table(box=None, pad_edge=False, header_style="dim")
    heads = ["branch"] if any(line["branch"] != "main" for line in lines) else []
    heads += ["task", *(["agent"] if any(line["agent"] for line in lines) else []), "model"]
    numbers = ["calls", "replayed", "in_doubt", "prompt_tokens", "completion_tokens"]
    numbers += ["cost"] if any(line["cost"] is not None for line in lines) else []
    for head in (*heads, *numbers):
        found.add_column(head.replace("_", " "), justify="right" if head in numbers else "left")
    for line in lines[:ROWS]:
        found.add_row(*(Text(str(line[head])) for head in heads), *(_number(line[head]) for head in numbers))
    if len(lines) > ROWS:
        found.add_row(Text(f"… and {len(lines) - ROWS} more, with --json", style="dim"))
    return found


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
