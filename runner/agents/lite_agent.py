"""An agent that is asked without a crew, by the names that other frameworks have for its fields."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, model_validator

from runner.agents.agent import Agent
from runner.core.output import LiteAgentOutput
from runner.providers.config import CheckpointConfig


class LiteAgent(Agent):
    """An `Agent` that is asked by ``kickoff`` alone. ``max_iterations`` is its ``max_iter``, 15 where that is left out;
    ``response_format`` is that of each kickoff that is given none."""

    max_iter: int = Field(default=15, ge=0)
    response_format: type[BaseModel] | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "max_iterations" in given:
            return {("max_iter" if name == "max_iterations" else name): value for name, value in given.items()}
        return given

    def kickoff(
        self,
        messages: "str | list[dict[str, Any]]",
        response_format: type[BaseModel] | None = None,
        input_files: Mapping[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
    ) -> LiteAgentOutput:
        """Ask the agent, and give its answer. Raises what its model raised."""
        return super().kickoff(messages, response_format or self.response_format, input_files, from_checkpoint)
