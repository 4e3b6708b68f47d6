"""Replaces the terminal, which a worker does not have: output is kept, and reading a line asks a person.

All prompts read ``sys.stdin`` (rich's, click's, getpass's, too); their question is the printed, unended line.
"""

import io
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TextIO

from runner.adapters.frameworks.approvals import ask_line, ask_text
from runner.journal.current_journal import active_journal, current_journal

_lock = threading.Lock()


class Printed(io.StringIO):
    """What a task prints; with ``last_line`` no more of it than that, as an agent may print for days."""

    answered = 0  #: how much of it there was at the last answer

    def __init__(self, *, last_line: bool = False) -> None:
        super().__init__()
        self._last_line = last_line

    def write(self, text: str, /) -> int:
        """Keep it."""
        if self._last_line and "\n" in text:
            self.seek(0)
            self.truncate()
            self.answered = 0
            super().write(text.rpartition("\n")[2])
            return len(text)
        return super().write(text)

    def line(self) -> str:
        """Return the last printed line that has no newline yet; "" if there is none."""
        return self.getvalue()[self.answered :].rpartition("\n")[2].strip()


_printed: ContextVar[Printed | None] = ContextVar("runner_program_printed", default=None)


def attach(*, last_line: bool = False) -> Printed:
    """From now on, keep what this context prints, with ``last_line`` only that, and ask a person for what it reads.

    Once it has asked, the task begins nothing more.
    """
    if (found := current_journal()) is not None:
        found[0].ends_when_asked = True
    with _lock:
        if not isinstance(sys.stdout, _Stdout):
            sys.stdout = _Stdout(sys.stdout)
        if not isinstance(sys.stdin, _Stdin):
            sys.stdin = _Stdin(sys.stdin)
    printed = Printed(last_line=last_line)
    _printed.set(printed)
    if (journal := active_journal()) is not None:
        journal.printed = printed
    return printed


def _ask_for_prompts(module: Any) -> None:
    """The prompts of prompt_toolkit: they want keys, where others read lines."""
    owner = getattr(module, "PromptSession", None)
    if owner is None or hasattr(owner.prompt, "asks_a_person"):
        return
    plain = import_module("prompt_toolkit.formatted_text").to_plain_text

    def question(session: Any, message: Any) -> str:
        return str(plain(session.message if message is None else message)).strip() or "input()"

    def prompt(session: Any, message: Any = None, **how: Any) -> Any:
        return ask_text(question(session, message)) if current_journal() else alone(session, message, **how)

    async def prompt_async(session: Any, message: Any = None, **how: Any) -> Any:
        return ask_text(question(session, message)) if current_journal() else await awaited(session, message, **how)

    alone, awaited = owner.prompt, owner.prompt_async
    prompt.asks_a_person = True  # type: ignore[attr-defined]  # as functools.wraps marks a function
    for asking in (prompt, prompt_async):
        setattr(owner, asking.__name__, asking)


class _Stdout:
    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        printed: TextIO | None = _printed.get()
        if printed is None and (journal := active_journal()) is not None:
            printed = journal.printed  # this is a thread that the task began
        if printed is not None:
            printed.write(text)
        return self._real.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _asks() -> bool:
    """Whether this is code of a task that was attached, in a thread of its own, too: others in its process are not."""
    found = current_journal()
    return found is not None and (found[0].ends_when_asked or _printed.get() is not None)


class _Stdin:
    def __init__(self, real: TextIO) -> None:
        self._real = real

    def readline(self, size: int = -1, /) -> str:
        """A line that a person gives; the real one for other tasks and outside of any."""
        if not _asks():
            return self._real.readline(size)
        printed = _printed.get()
        answer = ask_line(printed.line() if printed is not None else "")
        if printed is not None:
            printed.answered = printed.tell()
        return answer + "\n"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the real standard input, which is empty in a worker."""
        return iter(self._real)

    def isatty(self) -> bool:
        """Not for whoever wants keys."""
        return False

    def fileno(self) -> int:
        """None, so that it is asked for lines: raises `io.UnsupportedOperation`. The real one as `readline` has it."""
        if not _asks():
            return self._real.fileno()
        # Who looks for keys begins here: prompt_toolkit does, as a session of prompts is made.
        _ask_for_prompts(sys.modules.get("prompt_toolkit.shortcuts.prompt"))
        raise io.UnsupportedOperation("fileno")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
