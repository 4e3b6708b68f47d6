"""An agent without a crew, with the field names that other frameworks use."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, model_validator

from runner.agents.agent import Agent
from runner.core.output import LiteAgentOutput
from runner.providers.config import CheckpointConfig


class LiteAgent(Agent):
    """An `Agent` that is only asked by ``kickoff``. ``max_iterations`` is its ``max_iter`` (default 15);
    ``response_format`` is the default for its kickoffs.
    """

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
        """Ask the agent and return its answer. Raises what its model raised."""
        return super().kickoff(messages, response_format or self.response_format, input_files, from_checkpoint)
