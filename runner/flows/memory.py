"""A flow's memory: short texts in a folder, found by their words; or one that its author provides."""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from runner.core.safe_paths import write_below
from runner.core.settings import MEMORY
from runner.flows.execution import Execution
from runner.flows.learning import learn, review
from runner.flows.structured import ask

logger = logging.getLogger("runner.flows")

MOST = 10  #: records that `Memory.recall` gives, unless told otherwise


class MemoryRecord(BaseModel):
    """A remembered text. ``source`` says where it came from: ``hitl`` is a person's feedback."""

    id: str = ""
    content: str
    source: str | None = None
    categories: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class MemoryMatch(BaseModel):
    """A recalled record. ``score`` is the share of its words that are in the query, from 0 to 1."""

    record: MemoryRecord
    score: float


class Memory:
    """Texts in a folder, one file for each. Remembering and recalling call no model.

    A text is stored once, however often it is remembered. Processes on several machines may share the folder. ``llm``
    is the model, or its name, for `extract_memories`; default: the environment's.
    """

    def __init__(self, folder: str | Path, llm: Any = None) -> None:
        self.folder = Path(folder)
        self.llm = llm

    def remember(
        self,
        content: str,
        *,
        source: str | None = None,
        categories: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryRecord:
        """Store a text. One that is known, from the same source, stays unchanged."""
        text = content.strip()
        if not text:
            raise ValueError("there is nothing to remember: the text is empty")
        key = sha256(json.dumps([source, text]).encode()).hexdigest()[:32]
        if (known := self._read(self.folder / f"{key}.json")) is not None:
            return known
        record = MemoryRecord(
            id=key, content=text, source=source, categories=list(categories), metadata=dict(metadata or {})
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_below(self.folder, f"{key}.json", record.model_dump_json(indent=1).encode())
        return record

    def remember_many(self, contents: Iterable[str], **about: Any) -> list[MemoryRecord]:
        """Store several texts; ``about`` takes the options of `remember`. Empty ones are skipped."""
        return [self.remember(one, **about) for one in contents if one.strip()]

    def recall(
        self, query: str, *, limit: int = MOST, source: str | None = None, categories: Iterable[str] = ()
    ) -> list[MemoryMatch]:
        """Return the records with the most words in common with the query, the best first; of equal ones, the newest.

        ``source`` and ``categories`` restrict them to one source, and to records with at least one of the categories.
        """
        asked, wanted = _words(query), set(categories)
        found = [
            MemoryMatch(record=one, score=len((words := _words(one.content)) & asked) / max(1, len(words)))
            for one in self.records()
            if source in (None, one.source) and (not wanted or wanted & set(one.categories))
        ]
        found.sort(key=lambda match: (match.score, match.record.created_at, match.record.id), reverse=True)
        return found[: max(0, limit)]

    def extract_memories(self, content: str) -> list[str]:
        """Ask the model which sentences of a longer text are worth remembering. Raises `ModelError`."""
        found = ask(
            self.llm,
            Statements,
            "Write down what is worth remembering of a text: facts, decisions and preferences, each in one sentence "
            "that can be understood by itself. Where there is nothing of the kind, give none.",
            content,
        )
        return [one.strip() for one in found.statements if one.strip()]

    def records(self) -> list[MemoryRecord]:
        """Return all records."""
        return [one for path in self.folder.glob("*.json") if (one := self._read(path)) is not None]

    def _read(self, path: Path) -> MemoryRecord | None:
        try:
            return MemoryRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            logger.warning("%s is not a record of a flow's memory; it is ignored", path)
            return None


class Statements(BaseModel):
    """What a model finds worth remembering."""

    statements: list[str] = Field(default_factory=list, description="what is worth remembering, a sentence each")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))


class _OwnMemory:
    """An attribute that an author may set: to a `Memory`, to an object with its methods, or to None for no memory."""

    def __get__(self, flow: Any, owner: type) -> Any:
        if flow is None:
            return self
        folder = re.sub(r"[^\w.-]+|^\.+", "-", flow.flow_name) or "flow"
        return Memory(flow._task_files().workdir / MEMORY / folder)


class MemoryMethods:
    """The methods of a flow that remember and recall, and that learn from feedback."""

    memory: Any = _OwnMemory()
    """On the fleet the run's, in files that each of its methods finds; else in the working directory."""

    def remember(self, content: str | list[str], **about: Any) -> Any:
        """Store a text, or several, in the flow's memory; ``about`` takes the options of `Memory.remember`."""
        memory = self._memory("remember")
        return (
            memory.remember_many(content, **about) if isinstance(content, list) else memory.remember(content, **about)
        )

    def recall(self, query: str, **about: Any) -> Any:
        """Search the flow's memory; see `Memory.recall`."""
        return self._memory("recall").recall(query, **about)

    def extract_memories(self, content: str) -> list[str]:
        """Return what of a text is worth remembering; see `Memory.extract_memories`."""
        found: list[str] = self._memory("extract_memories").extract_memories(content)
        return found

    def _memory(self, what: str) -> Any:
        if self.memory is None:
            raise ValueError(f"{type(self).__name__}.{what}() needs a memory, and this flow's is None")
        return self.memory

    def _review_output(self, at: Execution, output: Any) -> Any:
        """The output as it is shown to a person."""
        return review(at, output)

    def _learn_from(self, at: Execution, output: Any, answer: str) -> None:
        """Learn from a person's answer."""
        learn(at, output, answer)
