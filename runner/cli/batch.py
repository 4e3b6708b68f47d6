"""A batch in a command's place of a run: shows it, lists its runs, waits for all, with results as JSON lines."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from runner.cli import spending
from runner.cli.stdio import STYLE, counted, err, out, print_json, print_whole, say, table_of
from runner.client import Batch, BatchState
from runner.client.ids import BATCH_ID
from runner.core.errors import Exit, UsageError
from runner.core.plain_text import json_text
from runner.core.states import RunStatus

LINE_EVERY = 10.0  #: seconds between two lines of progress where there is no terminal
STILL_RUNNING = 124  #: what `timeout` exits with
BAR = 24  #: characters of the bar, where there is room
_WORST = (("failed", Exit.FAILED), ("cancelled", Exit.CANCELLED), ("waiting", Exit.WAITING))


def is_batch(id: str, **of_one_run: object) -> bool:
    """Whether this is the id of a batch. Raises `UsageError` if an option is given with it that is for one run."""
    if not BATCH_ID.fullmatch(id):
        return False
    if given := [f"--{name}" for name, value in of_one_run.items() if value]:
        raise UsageError(f"{id} is a batch: {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for one run")
    return True


def follow(
    batch: Batch,
    title: str,
    total: int | None,
    write: Callable[[str], None],
    shown: bool,
    again: str,
    *,
    done: str = "submitted",
    timeout: float | None = None,
) -> int:
    """Print each result as a line of JSON when its run is over. Returns the exit code: that of the worst.

    ``again`` is the command that continues the batch, ``done`` what this one does with its runs.
    """
    if timeout is not None:
        batch.until = time.monotonic() + timeout
    progress = Progress(batch, title, total, done)
    try:
        with progress if shown else nullcontext():
            for number, result in batch:
                write(json_text({"line": number, **result.to_dict()}) + "\n")
                progress.counts[result.status] += 1
    except KeyboardInterrupt:
        say(f"detached: {progress.words()}")
        stays = f"no more runs are {done}, those that are active continue; to continue the batch: "
        say(f"{'the batch continues: ' if batch.begun_elsewhere else stays}{again}")
        return 130
    say(progress.words())
    if batch.stopped:
        say(f"error: batch {batch.id} is still running after {timeout:g} s; it continues: {again}")
        return STILL_RUNNING
    return _code(batch, progress, total)


def _code(batch: Batch, progress: "Progress", total: int | None) -> int:
    """The exit code of a batch that is over; says what a person can do about it."""
    left = total - batch.begun if total is not None else 0
    code = next((int(code) for status, code in _WORST if progress.counts[status]), int(left > 0 and Exit.WAITING))
    why = batch.why_stopped() if left > 0 else ""
    for line in what_next(batch.id, left, why, progress.counts):
        say(line)
    return int(Exit.CANCELLED) if why and code != Exit.FAILED else code


def what_next(id: str, left: int, stopped: str, runs: Counter[str]) -> Iterator[str]:
    """What a person can do about a batch of which nothing runs. ``left`` are inputs that were not submitted."""
    if left > 0 and stopped:
        yield f"the batch was cancelled ({stopped}): {counted(left, 'input')} not submitted"
        yield f"to continue it: runner resume {id}, then the command that submitted it"
    elif left > 0:
        yield f"{counted(left, 'input')} not submitted yet: the command that submitted the batch continues it"
    elif runs["failed"] or runs["cancelled"]:
        yield f"resume what failed or was cancelled: runner resume {id}"


def say_what_is_left(batch: Batch) -> None:
    """Say how many inputs of a batch were not submitted, if there are any."""
    state = batch.state()
    for line in what_next(batch.id, state.left, state.stopped, Counter()):
        say(line)


class Progress:
    """How far a batch is: in a terminal one line that changes, elsewhere a line at once and in each ten seconds."""

    def __init__(self, batch: Batch, title: str, total: int | None, done: str = "submitted") -> None:
        self.counts: Counter[str] = Counter()
        self._batch, self._title, self._total, self._done = batch, title, total, done
        self._began = time.monotonic()
        self._over = threading.Event()
        self._live = Live(self, console=err, refresh_per_second=4, transient=True) if err.is_terminal else None
        self._teller = threading.Thread(target=self._tell, name="runner-progress", daemon=True)

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.__enter__()
        else:
            self._batch.on_begun = self._say_first
            self._teller.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._live is not None:
            self._live.__exit__(None, None, None)
        else:
            self._teller.join()

    def _say_first(self) -> None:
        self._batch.on_begun = lambda: None
        self._say()

    def _tell(self) -> None:
        while not self._over.wait(LINE_EVERY):
            self._say()

    def _say(self) -> None:
        say(f"{time.monotonic() - self._began:7.1f}s  {self._state()}")

    def words(self) -> str:
        """Return the text of a row, with what it is about."""
        return f"{self._title}  {self._state()}"

    def _state(self) -> str:
        of = f" of {self._total:,}" if self._total is not None else ""
        return ", ".join([f"{self._batch.begun:,}{of} {self._done}", *how_many(self._all(), "done")])

    def _all(self) -> Counter[str]:
        return Counter({**self.counts, "running": self._batch.active})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        over, seconds = self.counts.total(), time.monotonic() - self._began
        text = Text(f"{self._state()}  {seconds:.0f} s")
        if over and self._total is not None and over < self._total:
            text.append(f", about {(self._total - over) * seconds / over:.0f} s left", style="dim")
        yield Text(self._bar(min(BAR, options.max_width - len(text) - 2))) + text

    def _bar(self, width: int) -> str:
        if self._total is None or width < BAR / 4:
            return ""
        done = width * self.counts.total() // max(self._total, 1)
        return "━" * done + "╌" * (width - done) + "  "


def how_many(runs: Counter[str], completed: str = "completed") -> list[str]:
    """How many runs there are of each status, in words, without those of which there is none."""
    words = {one.value: one.value for one in RunStatus} | {"completed": completed, "gone": "gone"}
    return [f"{runs[status]:,} {word}" for status, word in words.items() if runs[status]]


def show(state: BatchState, as_json: bool, now: int) -> int:
    """Print the state of a batch. Returns the exit code."""
    if as_json:
        print_json(state.to_dict())
        return 0
    ended = now if state.runs[RunStatus.running] or not state.ended_at else state.ended_at
    of = f" of {state.total:,}" if state.total else ""
    out.print(
        Text.assemble(
            (state.crew, "bold"),
            f"  {state.id}  ",
            (state.status, STYLE[state.status]),
            f"  {state.submitted:,}{of} submitted  {(ended - (state.created_at or ended)) / 1000:.1f} s",
        ),
        soft_wrap=True,
    )
    out.print(Text(f"runs: {', '.join(how_many(state.runs))}"), soft_wrap=True)
    if state.listed:
        table = table_of(("line", "run", "status", "error"), right=("line",), whole=("line", "run", "status"))
        for number, run in state.listed:
            status = Text(run.status.value, style=STYLE[run.status.value])
            table.add_row(f"{number:,}", run.id, status, Text(run.error))
        print_whole(table)
        more = state.runs["failed"] + state.runs["waiting"] - len(state.listed)
        if more > 0:
            out.print(Text(f"… and {more:,} more", style="dim"))
    ledger = state.ledger
    if (calls := spending.table(ledger)) is not None:
        print_whole(calls)
    out.print(
        Text(
            f"steps: {ledger['paid']:,} paid, {ledger['replayed']:,} replayed, {ledger['in_doubt']:,} in doubt; "
            f"{counted(state.recoveries, 'recovery', 'recoveries')}{spending.format_ledger(ledger)}"
        ),
        soft_wrap=True,
    )
    for line in what_next(state.id, state.left, state.stopped, state.runs) if not state.runs["running"] else ():
        say(line)
    return 0
