"""The seam to language models: what an agent calls. Clients of real providers are not part of this module."""

from abc import ABC, abstractmethod
from typing import Any

from runner.errors import ModelError


class BaseLLM(ABC):
    """A model to call. Subclass it and write ``call``; the constructor's arguments are there for those who want them.

    What the constructor is given stays in this process: of a model, a checkpoint holds the name and the temperature.
    """

    def __init__(
        self,
        model: str,
        temperature: float | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str | None = None,
        **options: Any,
    ) -> None:
        self.model = model
        self.temperature = temperature
        self.api_key = api_key
        self.base_url = base_url
        self.provider = provider
        self.options = options

    @abstractmethod
    def call(
        self,
        messages: str | list[dict[str, Any]],
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        """The model's answer: text, or a pydantic model or dict where ``response_model`` asks for one."""

    async def acall(self, messages: str | list[dict[str, Any]], **options: Any) -> Any:
        """`call` for those who await it. Without one of its own, a model is called in a thread."""
        import asyncio

        return await asyncio.to_thread(self.call, messages, **options)

    def supports_function_calling(self) -> bool:
        """Whether ``tools`` mean something to it."""
        return False

    def supports_stop_words(self) -> bool:
        """Whether stop words mean something to it."""
        return False

    def get_context_window_size(self) -> int:
        """How many tokens it takes."""
        return 4096

    def __repr__(self) -> str:  # never the key
        return f"{type(self).__name__}(model={self.model!r})"


class LLM(BaseLLM):
    """A model by its name, such as ``"gpt-4o-mini"``. It can be named, stored and restored, and not yet called."""

    def call(self, messages: str | list[dict[str, Any]], *_: Any, **__: Any) -> Any:  # noqa: ARG002 - the port's name
        """Raise `ModelError`: clients of real models come in their own issue."""
        raise ModelError(
            f"LLM({self.model!r}) cannot be called: clients of real models are not in this version yet; "
            "give the agent a subclass of runner.llm.BaseLLM with a call() of its own"
        )


def callable_model(llm: object) -> bool:
    """Whether an agent with ``llm`` can do a task: a model with a ``call`` of its own."""
    return isinstance(llm, BaseLLM) and type(llm).call is not LLM.call


def as_model(llm: Any) -> Any:
    """A model's name becomes an `LLM`; anything else stays as it is."""
    return LLM(llm) if isinstance(llm, str) else llm


def model_name(llm: Any) -> str | None:
    """What is told of a model where an agent is written down: its name, and never its key."""
    return None if llm is None else str(getattr(llm, "model", type(llm).__name__))
