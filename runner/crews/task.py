"""A task of a crew. ``run`` is work in plain Python; without it an agent does the task."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Literal
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from runner.agents import Agent, Link
from runner.core.class_names import Names
from runner.core.output import TaskOutput


class Task(BaseModel):
    """One piece of work.

    ``context`` names the tasks whose outputs it works on; left out, it is every earlier task. ``timeout`` and
    ``retry_delay`` are seconds; ``max_retries`` counts the attempts after the first that may follow an exception.
    A guardrail is a function of the output that gives ``(True, output)`` or ``(False, why)``; the task is then asked
    again, at most ``guardrail_max_retries`` times.

    ``pool`` says where a worker does it: in a ``"thread"`` among many, or in a ``"process"`` to itself, where a timeout
    breaks into whatever it is at. Left out, a process for a plain function as ``run``, or for an agent whose model is
    a class of yours; a thread for what mostly waits: other agents, and an ``async def`` as ``run``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    entity_type: ClassVar[str] = "task"

    id: UUID = Field(default_factory=uuid4)
    name: str | None = None
    description: str = ""
    expected_output: str = ""
    run: Callable[..., Any] | None = None
    agent: Agent | None = None
    context: list["Task"] | None = None
    async_execution: bool = False
    output_pydantic: type[BaseModel] | None = None
    output_json: type[BaseModel] | None = None
    output_file: str | None = None
    callback: Callable[[TaskOutput], Any] | None = None
    tools: list[Any] = Field(default_factory=list)
    guardrail: Any = None
    guardrails: list[Any] = Field(default_factory=list)
    guardrail_max_retries: int = Field(default=3, ge=0)
    human_input: bool = False
    markdown: bool = False
    config: dict[str, Any] | None = None
    timeout: float | None = Field(default=None, gt=0)
    max_retries: int = Field(default=0, ge=0)
    retry_delay: float = Field(default=1.0, ge=0)
    pool: Literal["process", "thread"] | None = None
    output: TaskOutput | None = Field(default=None, exclude=True)

    _crew: Link = PrivateAttr(default_factory=Link)

    @property
    def crew(self) -> Any:
        """The crew it belongs to, once it does."""
        return self._crew.to

    @crew.setter
    def crew(self, crew: Any) -> None:
        self._crew = Link(crew)

    @field_validator("run")
    @classmethod
    def _takes_a_context(cls, run: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if run is None:
            return None
        try:
            inspect.signature(run).bind(object())
        except TypeError:
            name = f"{getattr(run, '__name__', type(run).__name__)}()"
            raise ValueError(f"{name} must take one argument, the context, and require no other") from None
        except ValueError:  # a builtin without a signature: it will tell when called
            pass
        return run

    @property
    def context_is_default(self) -> bool:
        """Whether ``context`` was left out, which means every earlier task."""
        return "context" not in self.model_fields_set  # and so it stays in copies

    @property
    def checks(self) -> list[Any]:
        """Its guardrails, in order."""
        return [*([self.guardrail] if self.guardrail is not None else []), *self.guardrails]

    def output_model(self) -> type[BaseModel] | None:
        """The model the code at hand names for this task's output."""
        if self.output_pydantic or self.output_json:
            return self.output_pydantic or self.output_json
        if self.run is None:
            return None
        returned = getattr(self.run, "__annotations__", {}).get("return")
        if returned is not None and not isinstance(returned, type):  # else there is nothing to resolve
            try:
                returned = typing.get_type_hints(self.run).get("return")
            except Exception:  # an annotation that does not resolve names no model
                return None
        return returned if isinstance(returned, type) and issubclass(returned, BaseModel) else None

    def names(self) -> Names:
        """The classes that its code can name: what its output is made of elsewhere."""
        functions = [one for one in (self.run, *self.checks) if callable(one)]
        return Names(functions, [one for one in (self.output_pydantic, self.output_json) if one is not None])


class ConditionalTask(Task):
    """A task that is done only if ``condition`` says so of the output before it; else it gives empty text."""

    condition: Callable[[TaskOutput], Any] | None = None

    def should_execute(self, context: TaskOutput) -> bool:
        """What its condition says of the output before it. Raises `ValueError` without one."""
        if self.condition is None:
            raise ValueError(f"the conditional task {self.name or self.description[:40]!r} has no condition")
        return bool(self.condition(context))
