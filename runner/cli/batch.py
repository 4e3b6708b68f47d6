"""``runner submit --each`` and ``runner resume BATCH``: many runs, one progress display, results as JSON lines."""

import hashlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from rich.live import Live
from rich.text import Text

from runner.cli.options import json_of
from runner.cli.stdio import counted, err, say
from runner.client import Prepared
from runner.client.batch import Batch, Numbered, batch_id_for
from runner.core.errors import BadInput, Exit
from runner.core.inputs import stored
from runner.core.plain_text import json_text, of_class

LINE_EVERY = 10.0  #: seconds between two lines of progress where there is no terminal
_WORST = (("failed", Exit.FAILED), ("cancelled", Exit.CANCELLED), ("waiting", Exit.WAITING))


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """The file of inputs, to be read twice; ``-`` is stdin. Raises `BadInput`."""
    if file == "-":
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            yield copy
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise BadInput(f"--each {file} cannot be read: {error.strerror}") from None
        yield source


def lines(source: IO[bytes], name: str, common: Mapping[str, Any]) -> Iterator[Numbered]:
    """The inputs of each line, over those that all share, with the number of the line. Raises `BadInput`."""
    source.seek(0)
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        where = f"--each {name}, line {number}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{where} is not UTF-8 text") from None
        found = json_of(text, where)
        if not isinstance(found, dict):
            raise BadInput(f"{where} must hold a JSON object, not {of_class(found)}")
        yield number, {**common, **found}


def first(source: IO[bytes], name: str, common: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of the first run: what a file runs can depend on them. Raises `BadInput`."""
    return next((given for _, given in lines(source, name, common)), common)


def check(source: IO[bytes], name: str, common: Mapping[str, Any], prepared: Prepared) -> tuple[int, str]:
    """Look at every line before anything is stored. Returns how many there are, and what they come to, as a hash.

    Raises `BadInput` with the number of the first line that is wrong.
    """
    many, digest = 0, hashlib.sha256()
    for number, given in lines(source, name, common):
        try:
            values = prepared.given(given)
            prepared.refuse_missing(values)
            digest.update(f"{number} {stored(values)}\n".encode())
        except BadInput as error:
            raise BadInput(f"--each {name}, line {number}: {error}") from None
        many += 1
    if not many:
        raise BadInput(f"--each {name} holds no inputs: one JSON object a line")
    return many, digest.hexdigest()


def id_of(prepared: Prepared, key: str | None, digest: str) -> str:
    """The id of the batch: by its key, else the same for the same code and the same inputs."""
    return batch_id_for(f"id {key}" if key is not None else f"{prepared.code} {prepared.attr} {digest}")


def follow(batch: Batch, title: str, total: int | None, write: Callable[[str], None], shown: bool, again: str) -> int:
    """Print each result as a line of JSON when its run is over. Returns the exit code: that of the worst.

    ``again`` is the command that continues the batch.
    """
    progress = Progress(batch, title, total)
    live = Live(progress, console=err, refresh_per_second=4, transient=True) if shown and err.is_terminal else None
    try:
        with live or nullcontext():
            for number, result in batch:
                write(json_text({"line": number, **result.to_dict()}) + "\n")
                progress.add(result.status, said=shown and live is None)
    except KeyboardInterrupt:
        say(f"detached: {progress.words()}")
        say(f"no more runs are submitted, those that are active continue; to continue the batch: {again}")
        return 130
    say(progress.words())
    if progress.counts["failed"] or progress.counts["cancelled"]:
        say(f"resume what failed or was cancelled: runner resume {batch.id}")
    return next((int(code) for status, code in _WORST if progress.counts[status]), 0)


class Progress:
    """How far a batch is: in a terminal one line that changes, elsewhere a line now and then."""

    def __init__(self, batch: Batch, title: str, total: int | None) -> None:
        self.counts: Counter[str] = Counter()
        self._batch, self._title, self._total = batch, title, total
        self._began = self._said = time.monotonic()

    def add(self, status: str, *, said: bool) -> None:
        """Count a run that is over."""
        self.counts[status] += 1
        if said and time.monotonic() > self._said + LINE_EVERY:
            self._said = time.monotonic()
            say(f"{self._said - self._began:7.1f}s  {self.words()}")

    def words(self) -> str:
        """Return the text of a row, with what it is about."""
        return f"{self._title}  {self._state()}"

    def _state(self) -> str:
        over = self.counts.total()
        of = f" of {self._total:,}" if self._total is not None else ""
        text = f"{over:,}{of} over"
        for status in ("failed", "cancelled", "waiting"):
            if self.counts[status]:
                text += f", {self.counts[status]:,} {status}"
        if self._batch.active:
            text += f"; {counted(self._batch.active, 'run')} active"
        return text

    def __rich__(self) -> Text:
        over, seconds = self.counts.total(), time.monotonic() - self._began
        text = Text(f"{self._bar()}{self._state()}  {seconds:.0f} s")
        if over and self._total is not None and over < self._total:
            text.append(f", about {(self._total - over) * seconds / over:.0f} s left", style="dim")
        return text

    def _bar(self) -> str:
        if self._total is None:
            return ""
        width = 24
        done = width * self.counts.total() // max(self._total, 1)
        return "━" * done + "╌" * (width - done) + "  "
