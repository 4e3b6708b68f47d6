"""The memory of a flow: its own, in the folder that its methods write in, or what its author gives it."""

import re
from typing import Any

from runner.core.settings import MEMORY
from runner.flows.execution import Execution
from runner.flows.learning import learn, review
from runner.flows.memory import Memory


class _OwnMemory:
    """An attribute that an author may set to something else: a `Memory`, or what has its methods; None for none."""

    def __get__(self, flow: Any, owner: type) -> Any:
        if flow is None:
            return self
        folder = re.sub(r"[^\w.-]+|^\.+", "-", flow.flow_name) or "flow"
        return Memory(flow._task_files().workdir / MEMORY / folder)


class MemoryMethods:
    """What the methods of a flow remember and recall, and how they learn of what people say."""

    memory: Any = _OwnMemory()
    """On the fleet the run's, in files that each of its methods finds; else in the working directory."""

    def remember(self, content: str | list[str], **about: Any) -> Any:
        """Keep a text, or several, in the flow's memory; ``about`` as it takes it (`Memory.remember`)."""
        memory = self._memory("remember")
        return (
            memory.remember_many(content, **about) if isinstance(content, list) else memory.remember(content, **about)
        )

    def recall(self, query: str, **about: Any) -> Any:
        """What the flow's memory has that fits the query (`Memory.recall`)."""
        return self._memory("recall").recall(query, **about)

    def extract_memories(self, content: str) -> list[str]:
        """What of a text is worth remembering, as a model sees it (`Memory.extract_memories`)."""
        found: list[str] = self._memory("extract_memories").extract_memories(content)
        return found

    def _memory(self, what: str) -> Any:
        if self.memory is None:
            raise ValueError(f"{type(self).__name__}.{what}() needs a memory, and this flow's is None")
        return self.memory

    def _review_output(self, at: Execution, output: Any) -> Any:
        """What is shown to a person."""
        return review(at, output)

    def _learn_from(self, at: Execution, output: Any, answer: str) -> None:
        """Of a person's answer."""
        learn(at, output, answer)
