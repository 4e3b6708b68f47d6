"""Formats why an attempt failed: one line, and a traceback with the crew's own frames in full.

It has Python's format, a limited length, no secrets, and files as named in the bundle or package.
"""

import linecache
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePath
from traceback import walk_tb
from types import FrameType

from runner.bundles import loader, relative_paths
from runner.bundles.isolation import PREFIX
from runner.core.errors import RunnerError, one_line
from runner.core.redaction import redact
from runner.llm.clients.error_messages import longer_than_waited

LONGEST = 4000  #: characters of a trace that is kept
_HEAD = "Traceback (most recent call last):"
_ERRORS = 4  #: of a chain, the newest
_OWN = 10  #: frames of the crew's at each end: what recurses has a thousand
_OTHERS = 3  #: frames of other code that are shown where the error was raised

_Frame = tuple[FrameType, int]


def describe(error: BaseException) -> str:
    """Format an error in one line: our own unchanged, others with their type and the last line in the crew's code."""
    text = one_line(error)[:500]
    if isinstance(error, RunnerError):
        return text
    frame, line = loader.last_frame(error)
    where = f" ({Path(frame.f_code.co_filename).name}:{line})" if frame else ""
    where += longer_than_waited(error)
    where += f"; {relative_paths.ADVICE}" if relative_paths.is_led_astray(error) else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error; "" if it has none."""
    chain = _chain(error)
    if not any(one.__traceback__ for one, _ in chain):
        return ""
    text = "\n\n".join("\n".join([*([link] if link else []), *_lines(one)]) for one, link in chain)
    return _cut(redact(text))


def without_code(trace: str) -> str:
    """Return a traceback without its source lines: files, line numbers, functions, and the exception."""
    return "\n".join(line for line in trace.splitlines() if not line.startswith("    "))


def _chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """The chain of causes of an error, the oldest first, each with the line that connects it to the next."""
    found: list[tuple[BaseException, str]] = []
    one: BaseException | None = error
    seen: set[int] = set()
    link = ""
    while one is not None and id(one) not in seen and len(found) < _ERRORS:
        seen.add(id(one))
        found.append((one, link))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    texts = [""] * len(found)
    for i, (later, _) in enumerate(found[:-1]):
        texts[i] = "which caused:" if later.__cause__ is not None else "while that was handled:"
    return [(one, texts[i]) for i, (one, _) in reversed(list(enumerate(found)))]


def _lines(error: BaseException) -> Iterator[str]:
    groups = [
        (own, list(frames)) for own, frames in groupby(walk_tb(error.__traceback__), lambda found: _is_own(found[0]))
    ]
    if groups:
        yield _HEAD
    for number, (own, frames) in enumerate(groups):
        if own:
            yield from _shortened(frames, _OWN, _OWN)
        else:
            yield from _shortened(frames, 0, _OTHERS if number == len(groups) - 1 else 0)
    text = one_line(error)[:500]
    name = type(error).__name__
    yield f"{name}: {text}" if text else name


def _shortened(frames: list[_Frame], first: int, last: int) -> Iterator[str]:
    if len(frames) <= first + last:
        yield from map(_shown, frames)
        return
    between = frames[first : len(frames) - last]
    yield from map(_shown, frames[:first])
    whose = ", ".join(dict.fromkeys("the crew" if _is_own(frame) else _package(frame) for frame, _ in between))
    yield f"  ... {len(between)} frame{'s' if len(between) > 1 else ''} of {whose}"
    yield from map(_shown, frames[len(frames) - last :])


def _shown(found: _Frame) -> str:
    frame, line = found
    code = frame.f_code
    place = f'  File "{_file(frame)}", line {line}, in {code.co_qualname}'
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{place}\n    {text[:200]}" if text else place


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(PREFIX)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "?").partition(".")[0]


def _file(frame: FrameType) -> str:
    """The file's name in its bundle or package: with as many folders as its module has parent packages."""
    parts = PurePath(frame.f_code.co_filename).parts
    name = loader.plain_names(str(frame.f_globals.get("__name__") or ""))
    depth = name.count(".") + 1 + (parts[-1:] == ("__init__.py",))
    return "/".join(parts[-depth:])


def _cut(text: str) -> str:
    """Shorten a text in the middle, keeping its beginning and the exception."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half].rpartition(chr(10))[0]}\n  ...\n{text[-half:].partition(chr(10))[2]}"
