"""Formats ids, times and statuses for the screen."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from runner.client.checkpoints.model import Branch, Checkpoint, Details, TaskView
from runner.core.diff import DONE

MARK = {
    DONE: ("✓", "green"),
    "running": ("…", "cyan"),
    "failed": ("✗", "red"),
    "skipped": ("-", "dim"),
    "waiting": ("?", "magenta"),
}
STATUS = {
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("■", "yellow"),
    "running": ("▶", "cyan"),
    "waiting": ("?", "magenta"),
}
BAR = 20  #: cells of a progress bar


def clock(ms: int, today: int | None = None) -> str:
    """A time in 8 to 11 cells: the clock alone, on the day of ``today`` (ms; None: now); else the day too."""
    if not ms:
        return "--:--:--"
    then, day = time.localtime(ms / 1000), time.localtime(today / 1000 if today is not None else None)
    return time.strftime("%H:%M:%S" if then[:3] == day[:3] else "%m-%d %H:%M", then)


def moment(ms: int) -> str:
    """A time in full, in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(ms / 1000)) if ms else "not known"


def size(count: int) -> str:
    """Bytes as "12.3 KB"."""
    amount, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, what: str) -> str:
    """``1 checkpoint``, ``2 checkpoints``; ``2 branches``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('ch') else 's'}"


def short_id(checkpoint: str) -> str:
    """The part of an id that tells it apart from its neighbours."""
    return checkpoint.partition("_")[2] or checkpoint


def short_branch(name: str, most: int = 24) -> str:
    """A branch's name in so many cells: made names lose their date, long ones their middle."""
    kind, slash, rest = name.partition("/")
    stamp, underscore, tail = rest.partition("_")
    if slash and underscore and len(stamp) == 15 and stamp[8:9] == "T":
        name = f"{kind}/…{tail}"
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def branch_label(branch: Branch) -> Text:
    """A branch in the tree; with its newest one's day, unless that is today."""
    sign, style = STATUS.get(branch.status, ("", ""))
    label = Text.assemble(
        (f"{sign} " if sign else "", style),
        (short_branch(branch.name), "bold"),
        (f"  {len(branch.checkpoints)}", "dim"),
        (f"  {branch.status}" if branch.status else "", style),
    )
    if branch.checkpoints and len(clock(branch.checkpoints[-1].created_at)) > 8:
        label.append(time.strftime("  %m-%d", time.localtime(branch.checkpoints[-1].created_at / 1000)), "dim")
    return label


@dataclass(frozen=True, slots=True)
class Notes:
    """What the screen knows of a checkpoint beside the checkpoint: its mark, whether it is changed, how far it is."""

    mark: str = ""
    changed: bool = False
    progress: str = ""


def checkpoint_label(checkpoint: Checkpoint, newest: int, notes: Notes) -> Text:
    """A checkpoint in the tree, on a branch whose newest one is of the time ``newest``."""
    label = Text()
    if notes.mark:
        label.append(f"{notes.mark} ", "bold yellow")
    if notes.changed:
        label.append("✎ ", "bold yellow")
    label.append(clock(checkpoint.created_at, newest), "" if checkpoint.complete else "red")
    what = (checkpoint.task or notes.progress or checkpoint.trigger) if checkpoint.complete else "torn"
    label.append(f" {what}" if what else "", "" if checkpoint.complete else "bold red")
    label.append(f" {short_id(checkpoint.id)}", "dim")
    return label


def input_label(name: str, changed: bool) -> Text:
    """Return the label of an input in a list."""
    return Text.assemble(name, (" ✎", "bold yellow") if changed else "")


def task_label(task: TaskView, changed: bool) -> Text:
    """Return the label of a task in a list."""
    mark, style = MARK.get(task.status, ("·", "dim"))
    label = Text.assemble((mark, style), " ", (task.key, "" if task.status == DONE else "dim"))
    if changed:
        label.append(" ✎", "bold yellow")
    if task.status != DONE:
        label.append(f"  {task.status}", "dim")
    if task.agent:
        label.append(f"  {task.agent}", "dim italic")
    return label


def progress(done: int, total: int) -> Text:
    """Return a progress bar with its two numbers."""
    full = BAR * done // total if total else 0
    return Text.assemble(
        ("━" * full, "green"), ("━" * (BAR - full), "dim"), f"  {done} of {counted(total, 'task')} done"
    )


def facts(rows: Mapping[str, str]) -> Table:
    """Names and values; a long value is folded, never cut."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))
    return table


def of_branch(branch: Branch) -> Table:
    """Return the details of a branch."""
    origin = ""
    if branch.origin is not None:
        left = branch.origin.checkpoint or "a pruned checkpoint"
        origin = f"{branch.origin.branch} at {left}"
    return facts(
        {
            "branch": branch.name,
            "status": branch.status,
            "left": origin,
            "keeps": counted(len(branch.checkpoints), "checkpoint"),
            "newest": branch.checkpoints[-1].id if branch.checkpoints else "",
            "oldest": branch.checkpoints[0].id if branch.checkpoints else "",
        }
    )


def of_checkpoint(checkpoint: Checkpoint, details: Details | None = None) -> Table:
    """Return a checkpoint's metadata as text."""
    return facts(
        {
            "id": checkpoint.id,
            "branch": checkpoint.branch,
            "parent": checkpoint.parent or "none",
            "written": moment(checkpoint.created_at),
            "trigger": "  ".join(filter(None, (checkpoint.trigger, checkpoint.task))),
            "position": str(checkpoint.seq) if checkpoint.seq is not None else "",
            "size": size(checkpoint.size) if checkpoint.size is not None else "",
            "events": str(details.events) if details and details.events is not None else "",
            "version": details.version if details else "",
            "location": checkpoint.location,
        }
    )


def entities(details: Details) -> Table:
    """The crews, flows and agents in it, each with how far it is."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    for one in details.entities:
        of = f" of {one.total}" if one.total is not None else ""
        table.add_row(one.kind, Text(one.name or "unnamed", style="bold"), f"{one.done}{of} done")
    return table


def value_text(value: Any) -> str:
    """An input as text to edit: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def diff_text(lines: Iterable[str]) -> Text:
    """A diff in its colours. The first two lines name the sides."""
    text = Text()
    for i, line in enumerate(lines):
        style = {"+": "green", "-": "red", "@": "bold cyan"}.get(line[:1], "")
        text.append(line + "\n", f"bold {style}" if i < 2 else style)
    return text
