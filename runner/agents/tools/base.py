"""`BaseTool`, `Tool` and `@tool`: a tool has a name, a description for the model, and arguments with a schema."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, overload

from pydantic import BaseModel, ConfigDict, Field

from runner.agents.tools.schema import arguments_of, schema_from
from runner.core.waiting import awaited


class EnvVar(BaseModel):
    """An environment variable that a tool needs."""

    name: str
    description: str = ""
    required: bool = True
    default: str | None = None


class BaseTool(BaseModel, ABC):
    """A tool as a class: give it a ``name``, a ``description`` and a ``_run`` method.

    Args:
        args_schema: a pydantic model of the arguments. Default: made from the signature of ``_run``.
        result_as_answer: whether the tool's result is the agent's answer.
        max_usage_count: how often the tool may be called in one task.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    composed: ClassVar[bool] = False
    """Whether a use of it is made of steps of its own, which are in the account in its stead."""

    name: str
    description: str
    args_schema: Any = None
    env_vars: list[EnvVar] = Field(default_factory=list)
    result_as_answer: bool = False
    max_usage_count: int | None = Field(default=None, ge=1)

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002 - the hook's name
        """Create the schema, if none was given."""
        if not (isinstance(self.args_schema, type) and issubclass(self.args_schema, BaseModel)):
            self.args_schema = schema_from(self.name, self._function())

    @abstractmethod
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Perform the tool call. The model gets the returned value: text unchanged, anything else as JSON."""

    def _function(self) -> Callable[..., Any]:
        """The function whose signature describes the arguments."""
        return self._run

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool; arguments given by name are validated. An async ``_run`` is awaited."""
        if not args:
            kwargs = arguments_of(self, kwargs)
        result = self._run(*args, **kwargs)
        return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """`run`, to be awaited."""
        if not args:
            kwargs = arguments_of(self, kwargs)
        result = self._run(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


class Tool(BaseTool):
    """A tool made of a function."""

    func: Callable[..., Any]

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def _function(self) -> Callable[..., Any]:
        return self.func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.func(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(name: str = ..., /, **about: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(*given: Any, **about: Any) -> Any:
    """Make a tool of a function: ``@tool``, ``@tool("Name")``, ``@tool(result_as_answer=True)``.

    The function's docstring describes the tool to the model; its signature is the schema of the arguments.
    """
    if len(given) == 1 and callable(given[0]) and not isinstance(given[0], str):
        return _made(given[0], given[0].__name__, about)
    name = given[0] if given else None
    return lambda function: _made(function, name or function.__name__, about)


def _made(function: Callable[..., Any], name: str, about: Mapping[str, Any]) -> Tool:
    described = about.get("description") or inspect.getdoc(function)
    if not described:
        raise ValueError(f"the tool {name!r} needs a docstring: the model gets it as the description")
    return Tool(name=name, func=function, **{**about, "description": described})
