"""OpenAI's own client, for OpenAI and for all servers that speak its protocol."""

import contextlib
import functools
import platform
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from runner.core import deferred, waiting
from runner.llm.clients import recorded
from runner.llm.clients.completion import Completion, Gathered, Request, as_taken, named, read_openai, reading
from runner.llm.clients.model_names import Target
from runner.llm.clients.shared import OwnClient, SharedClients, arguments

deferred.defer("openai.types", "openai.types.responses")
import openai  # noqa: E402 - after that

_REASONING = ("o1", "o3", "o4", "gpt-5")
_NOT_IN_BODY = {"extra_headers", "extra_query", "extra_body", "timeout"}  #: arguments of each method of the client
_AS_SENT = {"messages", "tools", *_NOT_IN_BODY}  #: what the client sends as it is given


class Client:
    """Calls one model of one service."""

    def __init__(self, target: Target, timeout: float | None, max_retries: int) -> None:
        self._target = target
        about = arguments(target, timeout, max_retries)
        self._own = OwnClient(partial(openai.OpenAI, **about))
        self._shared = SharedClients(partial(openai.AsyncOpenAI, **about), openai.DefaultAsyncHttpxClient)

    def warm(self) -> None:
        """Create the vendor's client, and import the modules that its first call needs."""
        platform.platform()  # each request says it, and to find it out Python starts a process, as long as three calls
        client = self._shared.warm() if waiting.shared else self._own.get()
        client.chat.completions  # noqa: B018 - reading it imports it
        if waiting.shared and not _is_instrumented():
            _order()

    def complete(self, request: Request) -> Completion:
        """Send the request and return the answer."""
        client = self._own.get()
        body = self._body(request)
        if not request.stream:
            return read_openai(client.chat.completions.create(**as_taken(client.chat.completions.create, body)))
        gathered = Gathered(request.on_chunk)
        with client.chat.completions.create(**as_taken(client.chat.completions.create, body)) as stream, reading():
            for chunk in stream:
                gathered.add(chunk)
        return gathered.whole()

    async def acomplete(self, request: Request) -> Completion:
        """Send the request and return the answer, like `complete`, without blocking the event loop."""
        body = self._body(request)
        async with self._shared.one() as client:
            if not request.stream and not _is_instrumented():
                return await _raw(client.chat.completions.with_raw_response, body)
            taken = as_taken(client.chat.completions.create, body)
            if not request.stream:
                return read_openai(await client.chat.completions.create(**taken))
            gathered = Gathered(request.on_chunk)
            async with await client.chat.completions.create(**taken) as stream:
                with reading():
                    async for chunk in stream:
                        gathered.add(chunk)
            return gathered.whole()

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._target.model, "messages": list(request.messages), **request.options}
        if self._target.is_openai and self._target.model.startswith(_REASONING) and "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")  # the other one is refused
        if request.tools:
            body["tools"] = list(request.tools)
        if request.schema is not None and "response_format" not in body:
            name, schema = request.schema
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        if request.stream:
            body.update(stream=True, stream_options={"include_usage": True})
        return body


def _is_instrumented() -> bool:
    """Whether others look at what the client is called with, or sends, as to trace it: it is called as by anybody."""
    chat = openai.resources.chat
    return not _are_own(chat.Completions.create, chat.AsyncCompletions.create, openai.AsyncOpenAI.request)


@functools.lru_cache(maxsize=8)
def _are_own(*functions: Any) -> bool:
    folder = str(Path(openai.__file__).parent)
    return all(type(one) is FunctionType and one.__code__.co_filename.startswith(folder) for one in functions)


async def _raw(client: Any, body: dict[str, Any]) -> Completion:
    """Ask, and read the answer: without what the client does to each message and each argument and makes of an answer,
    which is more than half of what a call costs. What is given as ``extra_body`` is sent as it is, and takes the place
    of an argument: in the client's order, the request is the same in each byte.
    """
    taken = as_taken(openai.resources.chat.AsyncCompletions.create, body)  # one function, where each client has its own
    order = _order()
    if order and all(name in _AS_SENT or isinstance(value, str | int | float) for name, value in taken.items()):
        own = {name: taken.pop(name) for name in order if name in taken}
        taken |= dict.fromkeys(("model", "messages"), openai.NOT_GIVEN)
    else:
        own = {name: taken[name] for name in ("messages", "tools") if name in taken}
        taken |= dict.fromkeys(own, ())
    taken["extra_body"] = {**own, **taken.get("extra_body", {})}
    answer = await client.create(**taken)
    return recorded.read("openai", False, answer.content) or read_openai(answer.parse())


@functools.cache
def _order() -> tuple[str, ...]:
    """Return the names of a request's arguments in the order in which the client sends them; none if it is unknown."""
    create: Any = openai.resources.chat.Completions.create
    resource = SimpleNamespace(_post=lambda _, *, body, **__: body)
    with contextlib.suppress(Exception):  # another version's is made otherwise
        return tuple(create(resource, **dict.fromkeys((named(create) or set()) - _NOT_IN_BODY, "")))
    return ()
