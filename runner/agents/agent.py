"""Agents: who does a task, or is asked without a crew."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast
from uuid import UUID, uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PrivateAttr, model_validator

from runner.agents.mcp.servers import as_servers
from runner.agents.unsupported import refuse_unsupported
from runner.bundles.reading import stop_if_read
from runner.core import live_objects
from runner.core.output import LiteAgentOutput
from runner.core.private_state import Link, Linked, Private
from runner.core.runtime import engine_of
from runner.journal.rate_limit import RateLimiter
from runner.llm.llm import as_model, model_name
from runner.providers.config import CheckpointConfig, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping


class Agent(BaseModel):
    """A role with a goal, the model that it calls, and the tools that it may use.

    A task without ``run`` is done by its agent: it calls its model, which requests tools, until the model answers. A
    task in plain Python (``Task(run=...)``) may name an agent, which then only labels its output.

    Args:
        llm: a model's name, an `LLM` or a `BaseLLM` of your own. Default: the name in ``OPENAI_MODEL_NAME`` or
            ``MODEL``.
        max_iter: how many rounds of tools before the model has to answer.
        step_callback: called after each tool call and each answer.
        guardrail: a function of the output, or a rule in words that the model judges, as for a task.
        inject_date: whether the model is told the day on which the task began.
        config: a dict of fields, such as an entry of a project's YAML. Arguments override it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    entity_type: ClassVar[str] = "agent"

    id: UUID = Field(default_factory=uuid4)
    role: str
    goal: str = ""
    backstory: str = ""
    llm: Annotated[Any, BeforeValidator(as_model), PlainSerializer(model_name)] = None
    tools: list[Any] = Field(default_factory=list)
    mcps: Annotated[list[Any], BeforeValidator(as_servers)] = Field(default_factory=list, exclude=True)
    verbose: bool = False
    allow_delegation: bool = False
    max_iter: int = Field(default=25, ge=0)
    max_rpm: int | None = Field(default=None, ge=1)
    max_execution_time: float | None = Field(default=None, gt=0)
    respect_context_window: bool = True
    step_callback: Callable[[Any], Any] | None = Field(default=None, exclude=True)
    guardrail: Any = Field(default=None, exclude=True)
    guardrail_max_retries: int = Field(default=3, ge=0)
    inject_date: bool = False
    date_format: str = "%Y-%m-%d"
    checkpoint: Setting = None
    checkpoint_kickoff_event_id: str | None = None

    _crew: Link = PrivateAttr(default_factory=Link)
    _pace: RateLimiter = PrivateAttr(default_factory=RateLimiter)
    _kickoff_event_id: str | None = PrivateAttr(default=None)
    _restored: Any = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Register the agent, so that restored checkpoints find it, unless it was restored from one."""
        live_objects.remember(self, context)

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_would_be_ignored(cls, given: Any) -> Any:
        if isinstance(given, dict):
            if "config" in given:
                given = {**(given["config"] or {}), **{name: one for name, one in given.items() if name != "config"}}
            refuse_unsupported(cls.__name__, given, cls.model_fields.keys())
        return given

    crew = Linked("_crew", "The crew it works in, if it does.")
    pace = Private[RateLimiter]("_pace", "Counts its calls where it is asked without a crew.")
    kickoff_event_id = Private[str | None]("_kickoff_event_id", "The event that its last kickoff started with.")

    def kickoff(
        self,
        messages: "str | list[dict[str, Any]]",
        response_format: type[BaseModel] | None = None,
        input_files: "Mapping[str, Any] | None" = None,
        from_checkpoint: CheckpointConfig | None = None,
    ) -> LiteAgentOutput:
        """Ask the agent without a crew and return its answer.

        Args:
            messages: a prompt, or a conversation.
            response_format: a pydantic model for the answer.
            from_checkpoint: with a ``restore_from``, continue the conversation in that checkpoint.

        Raises what its model raised.
        """
        stop_if_read(None)
        engine = engine_of("crews")
        restored = engine.apply_checkpoint(self, from_checkpoint)
        model = response_format or getattr(self, "response_format", None)  # a `LiteAgent`'s own
        if restored is not None:
            given = {"messages": messages, "response_format": model, "input_files": input_files}
            return cast(LiteAgentOutput, restored.kickoff(**given))
        return cast(LiteAgentOutput, engine.ask(self._prepare_kickoff(messages, model, input_files)))

    async def kickoff_async(
        self,
        messages: "str | list[dict[str, Any]]",
        response_format: type[BaseModel] | None = None,
        input_files: "Mapping[str, Any] | None" = None,
        from_checkpoint: CheckpointConfig | None = None,
    ) -> LiteAgentOutput:
        """`kickoff` in a thread, to be awaited."""
        stop_if_read(None)
        given = messages, response_format, input_files, from_checkpoint
        output = await engine_of("crews").in_thread(self, self.kickoff, *given, config=from_checkpoint)
        return cast(LiteAgentOutput, output)

    akickoff = kickoff_async

    def _prepare_kickoff(self, *given: Any) -> Any:
        """Return what a kickoff asks."""
        return engine_of("crews").prepare_asking(self, *given)

    @classmethod
    def from_checkpoint(cls, config: CheckpointConfig, **code: Any) -> Self:
        """Return the agent of the checkpoint that ``config.restore_from`` names; its ``kickoff`` resumes there.

        Its model and tools come from the living agent with the same role and goal.
        """
        return cast("Self", engine_of("crews").restore(cls, config, **code))

    @classmethod
    def fork(cls, config: CheckpointConfig, branch: str | None = None) -> Self:
        """`from_checkpoint` on a new branch."""
        return cast("Self", engine_of("crews").restore(cls, config, fork=True, branch=branch))


class LiteAgent(Agent):
    """An `Agent` that is only asked by ``kickoff``.

    ``max_iterations`` is its ``max_iter`` (default 15); ``response_format`` is the default for its kickoffs.
    """

    max_iter: int = Field(default=15, ge=0)
    response_format: type[BaseModel] | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "max_iterations" in given:
            return {("max_iter" if name == "max_iterations" else name): value for name, value in given.items()}
        return given
