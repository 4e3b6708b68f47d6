"""A crew: tasks in an order. The fields are CrewAI's."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from runner.agent import Agent
from runner.config import CheckpointConfig
from runner.output import TaskOutput
from runner.task import Task


class Process(StrEnum):
    """In which order a crew's tasks run."""

    sequential = "sequential"
    """One after the other; ``async_execution`` tasks side by side until the next synchronous one."""
    graph = "graph"
    """Each task as soon as the tasks in its ``context`` are done."""


class CrewOutput(BaseModel):
    """What a crew gave back: the last task's output, and each task's."""

    raw: str = ""
    json_dict: Any = None
    pydantic: Any = Field(default=None, exclude=True)
    tasks_output: list[TaskOutput] = Field(default_factory=list)
    token_usage: dict[str, int] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.raw


class Crew(BaseModel):
    """Tasks, and who does them in which order. ``kickoff`` runs here; ``runner submit`` runs the same on the fleet."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str | None = None
    tasks: list[Task] = Field(default_factory=list)
    agents: list[Agent] = Field(default_factory=list)
    process: Process = Process.sequential
    checkpoint: CheckpointConfig | bool | None = None
    verbose: bool = False
    memory: bool = False
    max_rpm: int | None = None

    _by_key: dict[str, Task] = PrivateAttr(default_factory=dict)

    @property
    def by_key(self) -> dict[str, Task]:
        """Tasks by key, as the adapter filed them."""
        return self._by_key

    def kickoff(self, inputs: dict[str, Any] | None = None) -> CrewOutput:
        """Run this crew in this process and return its output. Raises what a task raised."""
        from runner.inprocess import kickoff  # the engine knows the crew, not the other way round

        return kickoff(self, inputs or {})

    async def kickoff_async(self, inputs: dict[str, Any] | None = None) -> CrewOutput:
        """`kickoff` in a thread."""
        import asyncio

        return await asyncio.to_thread(self.kickoff, inputs)
