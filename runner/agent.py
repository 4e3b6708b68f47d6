"""An agent: who does a task. The fields are CrewAI's."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Agent(BaseModel):
    """A role with a goal. Tasks in plain Python (``Task(run=...)``) may name one; it then only labels their output."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    role: str
    goal: str = ""
    backstory: str = ""
    llm: Any = None
    tools: list[Any] = Field(default_factory=list)
    verbose: bool = False
    allow_delegation: bool = False
    max_iter: int = 25
    max_rpm: int | None = None
    max_execution_time: float | None = None
    checkpoint: Any = None
