"""Displays a run in progress: a live table in a terminal, plain lines elsewhere."""

import textwrap
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from runner.cli.stdio import err, say
from runner.providers.records import INTERRUPTED, Event

_MARK = {"running": "…", "done": "✓", "failed": "✗", "retry": "↻", "moved": "↷"}
QUIET = 5.0, 60.0  #: seconds without a line until one says what runs; twice as long each time, up to the second
SPENT_EVERY = 3.0  #: seconds between two looks at what was spent, for a terminal
_ASKS = "awaits input"
_WIDTH = 60  #: characters of a name; one that is taken from a description may be a page
_COLOUR = {"running": "cyan", "done": "green", "failed": "red", "retry": "yellow", "moved": "yellow"}


class Display:
    """Shows events as they come, and what ``spent`` says of the run meanwhile. Use it in a ``with``.

    While no task is running, it also shows what ``waits_for`` says.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        spent: Callable[[], str] = lambda: "",
        waits_for: Callable[[], str] = lambda: "",
    ) -> None:
        self._title = title
        self._total = total
        self._began = time.monotonic()
        self._rows: OrderedDict[str, tuple[str, str, float, float | None]] = OrderedDict()
        self._past: set[tuple[str, str]] = set()
        self._live = Live(self, console=err, refresh_per_second=8, transient=False) if err.is_terminal else None
        self._over, self._said_last = threading.Event(), time.monotonic()
        self._spent, self._last_spent, self._waits_for = spent, "", waits_for
        tell = self._tell if self._live is None else self._poll_spent
        self._teller = threading.Thread(target=tell, name="runner-display", daemon=True)

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.__enter__()
        else:
            self._line(self._title)
        self._teller.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._teller.join(1.0)  # it may wait for the store
        if self._live is not None:
            self._last_spent = ""  # it may be of seconds ago; what is printed next says what it came to
            self._live.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        """Show one event of the run."""
        fields, task = event.fields, event.fields.get("task", "")
        shown = _short(task)
        match event.type:
            case "task_started" | "task_resumed":
                attempt = f"attempt {number}" if (number := fields.get("attempt", "1")) != "1" else ""
                self._row(task, "running", attempt)
                self._line(f"started   {shown} {attempt}".rstrip())
            case "task_completed":
                self._row(task, "done", "", ended=True)
                self._line(f"done      {shown}")
            case "task_failed":
                # A part of a task has the error of its library, of any length.
                why = fields.get("reason") or textwrap.shorten(fields.get("error", ""), 200, placeholder="…")
                if why == INTERRUPTED:
                    self._row(task, "moved", "interrupted", ended=True)
                    self._line(f"stopped   {shown}: interrupted")
                else:
                    self._row(task, "failed", why, ended=True)
                    self._line(f"failed    {shown}: {why}".rstrip(": "))
            case "task_retried":
                text = f"{fields['reason']}; again in {int(fields['delay_ms']) / 1000:.1f} s"
                self._row(task, "retry", text)
                self._line(f"retrying  {shown}: {text}")
            case "task_recovered" | "task_released":
                self._row(task, "moved", f"rescheduled: {fields['reason']}")
                self._line(f"recovered {shown}: {fields['reason']}")
            case "task_asked":
                self._row(task, "retry", _ASKS)
                self._line(f"asking    {shown}")
            case "task_progress":
                self._row(task, "running", fields["text"])
            case "task_log":
                self._line(f"log       {shown}: {fields['text']}")
                if self._live is not None:
                    err.print(Text.assemble((f"{shown}: ", "dim"), fields["text"]))
            case "calls_unrecorded":
                where = fields["text"].partition(" to ")[2]
                if (task, where) not in self._past:  # `runner show` says how many
                    self._past.add((task, where))
                    self._line(f"past      {shown}: calls of models that are not in the journal, to {where}")
            case "store_rewound":
                self._line(f"forgotten {shown}: the store was restored to an earlier state; what it lost is run again")
            case "write_refused":
                self._line(f"refused   {shown}: a late write by a worker that had lost its claim")

    def note(self, text: str) -> None:
        """Print a line that is not about an event."""
        if self._live is not None:
            err.print(Text(text, style="dim"))
        else:
            self._line(text)

    def _row(self, task: str, state: str, text: str, *, ended: bool = False) -> None:
        began = self._rows[task][2] if task in self._rows else time.monotonic()
        self._rows[task] = (state, text, began, time.monotonic() if ended else None)

    def _line(self, text: str) -> None:
        if self._live is None:
            self._said_last = time.monotonic()
            say(f"{self._said_last - self._began:7.1f}s  {text}")

    def _tell(self) -> None:
        """Where no terminal shows how the time passes: a line that something runs, where nothing else was said."""
        pause, most = QUIET
        while not self._over.wait(max(0.0, self._said_last + pause - time.monotonic())):
            if time.monotonic() - self._said_last < pause:
                pause = QUIET[0]
                continue
            running = self._running()
            more = f" and {len(running) - 3} more" if len(running) > 3 else ""
            spent = f": {text}" if (text := self._spent()) else ""
            what = f"running   {', '.join(running[:3])}{more}" if running else f"waiting   {self._waiting()}"
            self._line(f"{what}{spent}")
            pause = min(pause * 2, most)

    def _poll_spent(self) -> None:
        while not self._over.wait(SPENT_EVERY):
            self._last_spent = ": ".join(filter(None, ("" if self._running() else self._waiting(), self._spent())))

    def _running(self) -> list[str]:
        return [_short(task) for task, (state, *_) in list(self._rows.items()) if state == "running"]

    def _waiting(self) -> str:
        retried = ((_short(task), text) for task, (state, text, *_) in list(self._rows.items()) if state == "retry")
        task, text = next(retried, ("", ""))
        why = f"{task} {text}" if text == _ASKS else f"{task} is to be tried again" if task else self._waits_for()
        return f"no task is running{f' ({why})' if why else ''}"

    def __rich__(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        done = sum(state == "done" for state, *_ in self._rows.values())
        rows = list(self._rows.items())
        hidden = max(0, len(rows) - 20)
        finished = [key for key, row in rows if row[0] == "done"][:hidden]
        for task, (state, text, began, ended) in rows:
            if task in finished:
                continue
            mark: RenderableType = (
                Spinner("dots", style="cyan") if state == "running" else Text(_MARK[state], style=_COLOUR[state])
            )
            seconds = (ended or time.monotonic()) - began
            table.add_row(
                mark,
                Text(_short(task), style=_COLOUR[state]),
                Text(f"{seconds:5.1f} s", style="dim"),
                Text(text, style="dim"),
            )
        of = f"/{self._total}" if self._total else ""
        tasks = "task" if (self._total or done) == 1 else "tasks"
        head = Text.assemble(
            (self._title, "bold"), (f"   {done}{of} {tasks}   {time.monotonic() - self._began:.0f} s", "dim")
        )
        more = [Text(f"  … and {len(finished)} done earlier", style="dim")] if finished else []
        spent = [Text(f"  {self._last_spent}", style="dim")] if self._last_spent else []
        return Group(head, *more, table, *spent)


def _short(name: str) -> str:
    """Return the name in one line."""
    return textwrap.shorten(name, _WIDTH, placeholder="…") if len(name) > _WIDTH or "\n" in name else name
