"""Language models: the interface that agents call, and `LLM`, which calls vendors' services through their clients."""

import contextlib
import functools
import importlib
import importlib.metadata
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from runner.bundles.reading import stop_if_read
from runner.core import backoff, waiting
from runner.core.errors import ModelError, RunnerError
from runner.llm.clients import (
    Completion,
    OnChunk,
    Request,
    Target,
    ToolCalls,
    Unreadable,
    client_of,
    context_window,
    resolve,
    sendable,
)
from runner.llm.clients.error_messages import asked_to_wait, format_failure, longer_than_waited
from runner.llm.clients.model_names import without_secrets
from runner.modelserver import stubs

if TYPE_CHECKING:
    from runner.hooks.recorded import HookedCall
    from runner.streaming import StreamSession

Messages = str | list[dict[str, Any]]

MODEL_VARIABLES = ("OPENAI_MODEL_NAME", "MODEL")
"""Where the model's name stands for agents that are given none."""

_EXTRAS = {"anthropic": "anthropic", "litellm": "litellm"}


class BaseLLM(ABC):
    """A model to call. Subclass it and write ``call``; the constructor's arguments are attributes.

    They stay in this process: a checkpoint holds only the model's name and temperature.
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
        messages: Messages,
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        """Call the model and return its answer as text.

        It is a list of tool calls in OpenAI's form if the model requests some of ``tools``, and a pydantic model or
        dict if there is a ``response_model``.
        """

    async def acall(self, messages: Messages, **options: Any) -> Any:
        """`call`, to be awaited. By default it calls `call` in a thread."""
        import asyncio

        return await asyncio.to_thread(self.call, messages, **options)

    def stream_events(self, messages: Messages, tools: list[Any] | None = None, **options: Any) -> "StreamSession[Any]":
        """Return a session that makes the call while it is iterated, yields its frames, and has its ``result``."""
        from runner.streaming import kickoffs

        return kickoffs.of_flow(functools.partial(self._streamed, messages=messages, tools=tools, **options))

    def _streamed(self, **asked: Any) -> Any:
        return self.call(**asked)

    def supports_function_calling(self) -> bool:
        """Whether the model takes ``tools``. If not, the agent describes them in the prompt and parses the answer."""
        return False

    def supports_stop_words(self) -> bool:
        """Whether the model takes stop words."""
        return False

    def get_context_window_size(self) -> int:
        """The size of the context window, in tokens."""
        return 4096

    def __repr__(self) -> str:  # never the key
        return f"{type(self).__name__}(model={self.model!r})"


class LLM(BaseLLM):
    """A model, given by its name and called through its vendor's client.

    Args:
        model: ``"openai/gpt-4o-mini"``, ``"anthropic/claude-sonnet-4-5"``, ``"ollama/llama3.2"``, ``"vllm/..."``,
            ``"llamacpp/..."``, ``"openrouter/..."``; other prefixes go through LiteLLM.
        base_url: any server that speaks OpenAI's protocol.
        timeout: seconds for one answer.
        max_retries: how often a call is repeated after 408, 409, 429, 5xx, a lost connection or an incomplete answer;
            ``Retry-After`` is respected.

    Keys and URLs that are not given come from the environment of the calling process: ``OPENAI_API_KEY``,
    ``OPENAI_BASE_URL``, ``ANTHROPIC_API_KEY``, ... Other options are passed to the client.
    """

    def __init__(
        self,
        model: str,
        temperature: float | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str | None = None,
        *,
        api_base: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        stream: bool = False,
        context_window_size: int = 0,
        is_litellm: bool = False,
        additional_params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise ValueError('LLM(model=...) takes the name of a model, such as "openai/gpt-4o-mini"')
        if max_retries < 0:
            raise ValueError(f"max_retries must not be negative, got {max_retries}")
        super().__init__(model, temperature, api_key, base_url or api_base, "litellm" if is_litellm else provider)
        self.timeout = timeout
        self.max_retries = max_retries
        self.stream = stream
        self.context_window_size = context_window_size
        given = {**options, **(additional_params or {})}
        self.options = {name: value for name, value in given.items() if value is not None}
        self._clients: dict[Target, Any] = {}
        self._warm: set[Target] = set()
        self._usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "successful_requests": 0}
        self._lock = threading.Lock()

    def call(
        self,
        messages: Messages,
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,  # noqa: ARG002 - the port's name
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        """Call the model and return its answer: text, or the requested tool calls (`ToolCalls`).

        For a call of one of the ``available_functions`` it is that function's result. Raises `ModelError`, and
        `HookAborted` if a hook refuses the call.
        """
        hooked = _hooked(self, messages, from_task, from_agent)
        completion = self.complete(hooked.before(), tools, response_model)
        return hooked.after(_as_called(completion, available_functions, response_model))

    async def acall(self, messages: Messages, **options: Any) -> Any:
        """`call`, to be awaited."""
        model = options.get("response_model")
        hooked = _hooked(self, messages, options.get("from_task"), options.get("from_agent"))
        completion = await self.acomplete(hooked.before(), options.get("tools"), model)
        return hooked.after(_as_called(completion, options.get("available_functions"), model))

    def _streamed(self, **asked: Any) -> Any:
        if type(self).call is not LLM.call:
            return super()._streamed(**asked)
        from runner.llm import streamed

        form = asked.get("response_model")
        ask = functools.partial(self.complete, asked["messages"], asked["tools"], form, stream=True)
        by_transport = self.journaled_by_transport
        completion = streamed.complete(self, ask, asked, model=self.model, journaled_by_transport=by_transport)
        return _as_called(completion, asked.get("available_functions"), form)

    def complete(
        self,
        messages: Messages,
        tools: Sequence[Any] | None = None,
        response_model: Any = None,
        on_chunk: OnChunk | None = None,
        stream: bool = False,
    ) -> Completion:
        """Call the model and return the whole answer with its token counts. Raises `ModelError`.

        ``on_chunk`` is called with each `Piece` of a streamed answer: if this model streams, or with ``stream``.
        """
        target = self._target()
        client, request = self._client(target), self._request(messages, tools, response_model, on_chunk, stream)
        for attempt in range(1, self.max_retries + 2):
            try:
                return self.counted(client.complete(request))
            except RunnerError:
                raise
            except Exception as error:
                request, pause = self._again(error, request, target, attempt)
            waiting.sleep(pause)
        raise AssertionError("unreachable")

    async def acomplete(
        self,
        messages: Messages,
        tools: Sequence[Any] | None = None,
        response_model: Any = None,
        on_chunk: OnChunk | None = None,
        stream: bool = False,
    ) -> Completion:
        """`complete`, to be awaited."""
        import asyncio

        target = self._target()
        client, request = self._client(target), self._request(messages, tools, response_model, on_chunk, stream)
        for attempt in range(1, self.max_retries + 2):
            try:
                return self.counted(await client.acomplete(request))
            except RunnerError:
                raise
            except Exception as error:
                request, pause = self._again(error, request, target, attempt)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def settings(
        self, tools: Sequence[Any] = (), response_model: Any = None, stream: bool = False
    ) -> tuple[Any, ...] | None:
        """Return what the request depends on besides the conversation, without keys; None if unknown or unreadable."""
        from runner.llm.clients import recorded  # here and below, as who only describes a crew reads none

        target = self._target()
        if type(self) is not LLM or not recorded.can_read(target.client, stream or self.stream):
            return None
        place = target.client, _version(target.client), target.model, without_secrets(target.base_url or "")
        return *place, *self._options(response_model), stream or self.stream, list(tools)

    def recorded(self, body: bytes, stream: bool = False, on_chunk: OnChunk | None = None) -> Completion | None:
        """Parse a recorded answer as the vendor's client does; None if that needs the client."""
        from runner.llm.clients import recorded

        return recorded.read(self._target().client, stream or self.stream, body, on_chunk)

    def counted(self, completion: Completion) -> Completion:
        """Return the completion and count its tokens."""
        with self._lock:
            self._usage["successful_requests"] += 1
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                self._usage[name] += completion.usage.get(name, 0)
        return completion

    def warm(self) -> None:
        """Create the client ahead, so that the first call is as fast as others. Errors are left to that call."""
        with contextlib.suppress(RunnerError, ImportError):
            target = self._target()
            if target in self._warm:
                return
            if (waiter := waiting.here()) is None:
                self._make(target)
            else:  # an import on a thread that many tasks share would keep all of them waiting
                waiter.once((LLM, target.client), functools.partial(self._make, target))

    def _make(self, target: Target) -> None:
        self._client(target).warm()
        self._warm.add(target)

    def supports_function_calling(self) -> bool:
        """True."""
        return True

    def supports_stop_words(self) -> bool:
        """True: as ``stop``."""
        return True

    def get_context_window_size(self) -> int:
        """The size of the context window in tokens, as given or as known for the model's name; 0 if unknown."""
        return self.context_window_size or context_window(self.model) or 0

    def get_token_usage_summary(self) -> dict[str, int]:
        """Return the tokens of all answers of this object in this process."""
        with self._lock:
            return dict(self._usage)

    @property
    def journaled_by_transport(self) -> bool:
        """Whether the HTTP transport journals its calls."""
        # A stand-in is asked with OpenAI's client. Neither key nor address is needed, nor looked for.
        return stubs.chosen() is not None or client_of(self.model, self.provider, self.base_url) != "litellm"

    def _target(self) -> Target:
        if (instead := stubs.chosen()) is not None:  # whatever it is called: the run asks no vendor
            return Target("openai", self.model.rpartition("/")[2], stubs.base_url(instead), "none")
        return resolve(self.model, self.provider, self.base_url, self.api_key, os.environ)

    def _client(self, target: Target) -> Any:
        with self._lock:
            if target not in self._clients:
                try:
                    module = importlib.import_module(f"runner.llm.clients.{target.client}")
                except ModuleNotFoundError as error:
                    extra = _EXTRAS.get(target.client)
                    if extra is None or error.name != extra:
                        raise
                    raise ModelError(
                        f"the model {self.model!r} is called through {extra}, which is not installed here: "
                        f"pip install 'crew-runner[{extra}]'"
                    ) from None
                self._clients[target] = module.Client(target, self.timeout, self.max_retries)
            return self._clients[target]

    def _request(
        self,
        messages: Messages,
        tools: Sequence[Any] | None,
        response_model: Any,
        on_chunk: OnChunk | None,
        stream: bool,
    ) -> Request:
        said = sendable([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)
        options, schema = self._options(response_model)
        return Request(said, tuple(tools or ()), options, schema, stream or self.stream, on_chunk)

    def _options(self, response_model: Any) -> tuple[dict[str, Any], tuple[str, dict[str, Any]] | None]:
        options = dict(self.options)
        if self.temperature is not None:
            options["temperature"] = self.temperature
        schema = None
        if isinstance(response_model, type) and issubclass(response_model, BaseModel):
            schema = (response_model.__name__, response_model.model_json_schema())
        return options, schema

    def _again(self, error: Exception, request: Request, target: Target, attempt: int) -> tuple[Request, float]:
        """Return the next request after an error, and the seconds to wait before it.

        Raises `ModelError` if nothing is left to try. The vendors' clients have retried already, except after an
        incomplete answer or one that is not JSON. LiteLLM has not: its retries need a package that it does not install,
        and ignore the reason of a refusal.
        """
        status, pause = getattr(error, "status_code", None), backoff.delay(attempt, 0.5)
        if not isinstance(status, int):  # the store's errors have one, too, in words
            status = None
        if status in (400, 422) and request.schema is not None:
            return replace(request, schema=None), pause
        half = isinstance(error, Unreadable | ValueError) or type(error).__module__.startswith("httpx")
        if (half and status is None) or status == 200:
            if attempt <= self.max_retries:
                return request, pause
            raise format_failure(Unreadable(str(error)), target, attempt) from None
        passes = status in (408, 409, 429) or (status or 0) >= 500
        if passes and target.client == "litellm" and attempt <= self.max_retries and not longer_than_waited(error):
            return request, asked_to_wait(error) or pause
        tries = self.max_retries + 1 if passes or status is None else 1
        raise format_failure(error, target, tries) from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_clients")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _clients={})


def _hooked(llm: LLM, messages: Messages, task: Any, agent: Any) -> "HookedCall":
    """The hooks for a call that the author's code makes itself; none while a crew file is read."""
    from runner.hooks.recorded import HookedCall  # who only describes a crew does not pay for it

    stop_if_read(None)
    return HookedCall(llm, messages, task, agent)


@functools.cache
def _version(client: str) -> str:
    """The version of a vendor's client: another one may make another request."""
    return importlib.metadata.version(client)


def _as_called(completion: Completion, functions: Mapping[str, Callable[..., Any]] | None, response_model: Any) -> Any:
    if completion.tool_calls:
        call = completion.tool_calls[0]["function"]
        if functions and call["name"] in functions:
            return functions[call["name"]](**json.loads(call["arguments"] or "{}"))
        return ToolCalls(completion.tool_calls, completion.text)
    if isinstance(response_model, type) and issubclass(response_model, BaseModel):
        return response_model.model_validate_json(completion.text)
    return completion.text


def model_for(llm: Any) -> BaseLLM | None:
    """Return the model of an agent with this ``llm``; without one, the environment's."""
    if llm is None:
        named = next((os.environ[name] for name in MODEL_VARIABLES if os.environ.get(name)), stubs.chosen())
        return LLM(named) if named else None
    return llm if isinstance(llm, BaseLLM) else None


def as_model(llm: Any) -> Any:
    """Convert a model's name to an `LLM`; return anything else unchanged."""
    return LLM(llm) if isinstance(llm, str) else llm


def model_name(llm: Any) -> str | None:
    """Return the name under which a model is serialized, never with its key."""
    return llm if llm is None or isinstance(llm, str) else str(getattr(llm, "model", type(llm).__name__))
