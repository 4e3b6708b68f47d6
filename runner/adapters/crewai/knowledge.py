"""Builds a crew's knowledge once per run and machine, and once per task; CrewAI embeds it at each import."""

import hashlib
import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from crewai.knowledge.knowledge import Knowledge

from runner.bundles.reading import being_read
from runner.journal.current_journal import current_journal

_read: list[Knowledge] = []
"""The knowledge of crews that were made while a file was read."""


def watch() -> None:
    """From now on, add knowledge when a task begins, so that its embedding calls are recorded, not while reading."""
    add = Knowledge.add_sources
    if getattr(add, "once", False):
        return

    @wraps(add)
    def add_sources(self: Knowledge) -> None:
        if being_read() is not None:
            _read.append(self)
        else:
            _once(self, add)

    add_sources.once = True  # type: ignore[attr-defined]  # a mark on a function
    Knowledge.add_sources = add_sources


def add_what_was_read() -> None:
    """Add the knowledge of the crews that were created while the file was read."""
    while _read:
        _read.pop(0).add_sources()


def _once(knowledge: Knowledge, add: Callable[[Knowledge], None]) -> None:
    """Add knowledge, unless this run has added it on this machine before."""
    mark = _mark(knowledge) if current_journal() is not None else None
    if mark is None or not mark.exists():
        add(knowledge)
    if mark is not None:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    for source in knowledge.sources:
        source.storage = knowledge.storage


def _mark(knowledge: Knowledge) -> Path | None:
    """Return the file that exists once the run has added this knowledge; None where its content cannot be compared."""
    kept = Path(os.environ.get("CREWAI_STORAGE_DIR", ""))
    if not kept.is_absolute():
        return None
    try:
        said = [source.model_dump(mode="json", exclude={"storage", "chunks"}) for source in knowledge.sources]
        text = json.dumps([knowledge.collection_name, said], sort_keys=True)
    except Exception:  # a source of the crew's own
        return None
    return kept / "added" / hashlib.sha256(text.encode()).hexdigest()[:32]
