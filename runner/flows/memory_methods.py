"""A flow's memory: its own, in the folder that its methods write in, or one that its author provides."""

import re
from typing import Any

from runner.core.settings import MEMORY
from runner.flows.execution import Execution
from runner.flows.learning import learn, review
from runner.flows.memory import Memory


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
