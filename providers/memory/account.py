"""The ledger of a run: steps that were paid for, replayed or are in doubt, by agent and model."""

from collections.abc import Mapping
from typing import Literal

from runner.core.ledger import NO_TOKENS, AccountKey, Counters, Usage
from runner.providers.memory.state import Task

Counter = Literal["paid", "replayed", "in_doubt"]

_DETAILS = Usage._fields[2:]
_COLUMNS: Mapping[Counter, int] = {"paid": 0, "replayed": 1, "in_doubt": 2}
_WIDTH = len(_COLUMNS) + 3 + len(_DETAILS)


def add(task: Task, counter: Counter, entries: Counters, usage: Usage = NO_TOKENS) -> None:
    """Count these steps. Tools are apart; a call of a model also counts where it was made, with its tokens."""
    counters = task.branch.run.counters
    for entry, many in entries.items():
        if many <= 0:
            continue
        counters[f"tools_{counter}" if entry.kind == "tool" else counter] += many
        if entry.kind == "tool" and entry.model:
            counters[f"tools_{counter}:{entry.model}"] += many
        if entry.kind == "model":
            _call(task, counter, entry, many, entries.tokens[entry], usage)


def _call(task: Task, counter: Counter, entry: AccountKey, many: int, served: int, usage: Usage) -> None:
    """A line of the ledger, as `runner.core.ledger.LedgerRow` has its numbers."""
    run, key = task.branch.run, (task.branch.name, task.key, entry.agent, entry.model)
    line = run.ledger.setdefault(key, [0] * _WIDTH)
    line[_COLUMNS[counter]] += many
    for i, count in enumerate((usage.prompt_tokens, usage.completion_tokens, served, *usage[2:]), len(_COLUMNS)):
        line[i] += count
    run.counters["replayed_tokens"] += served
    for name, count in zip(_DETAILS, usage[2:], strict=True):
        run.counters[name] += count


def doubtful(begun: Counters, left: Counters | None) -> Counters:
    """What of the steps that were begun is in doubt.

    ``left`` are the calls of models, and where it has an entry for no tool also those of tools, that had left the
    process: one that was begun and never left is in no doubt. Its tokens say of how many of each the note may be
    missing. And it has steps of which the note may be missing.
    """
    if left is None:
        return begun
    found, kinds = (
        Counters(),
        {"model", *(entry.kind for entry, many in left.items() if entry.kind == "tool" and not many)},
    )
    for entry in begun.keys() | left.keys():
        noted, out = max(begun[entry], 0), max(left[entry], 0)
        found[entry] = min(noted + left.tokens[entry], out) if entry.kind in kinds else max(noted, out)
    return found
