"""OpenAI's own client, for OpenAI and for all servers that speak its protocol."""

import contextlib
import functools
import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from runner.core import deferred, waiting
from runner.llm.clients import recorded
from runner.llm.clients.completion import Completion, Gathered, Request, as_taken, named, read_openai, reading
from runner.llm.clients.model_names import Target
from runner.llm.clients.shared import OwnClient, SharedClients, arguments

deferred.defer("openai.types", "openai.types.responses")
import openai  # noqa: E402 - after that

_REASONING = ("o1", "o3", "o4", "gpt-5")
_NOT_IN_BODY = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json", "timeout": "timeout"}
"""Arguments of each method of the client, and the options of a request that they are."""
_GIVEN = ("method", "url", "headers", "json_data")  #: what a request is told to be made of
_AS_IT_COMES = {"X-Stainless-Raw-Response": "true"}  #: what the client's ``with_raw_response`` asks with
_SPECIAL = ("params", "files", "content")  #: what changes more of a request than its body
_OF_ONE = (b"content-length", b"cookie")  #: headers of each request
KINDS = 16  #: of requests, whose common parts are kept: who gives each a header of its own has as many as requests
_AS_SENT = {"messages", "tools", *_NOT_IN_BODY}  #: what the client sends as it is given


class AsyncOpenAI(openai.AsyncOpenAI):
    """The vendor's client, with its name, which each request says.

    It makes once what its requests have in common, the address and the headers: that was a sixth of the Python calls
    until a call is out.
    """

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self._made: dict[Any, Callable[[bytes], Any]] = {}

    def request(self, cast_to: Any, options: Any, **how: Any) -> Any:
        """Make a request. The client copies twice which options were given, the empty ones, too: 1.5 KB of an agent."""
        (given := options.model_fields_set).clear()
        given.update(_GIVEN)
        return super().request(cast_to, options, **how)

    def _send_request(self, request: Any, **how: Any) -> Any:
        """Send as a client with a key does, without the coroutines in which others get theirs."""
        return self._client.send(request, **how)

    def _build_request(self, options: Any, **how: Any) -> Any:
        kind = None if any(how.values()) else self._kind(options)
        body = None if kind is None else _encoded(options)
        if body is None:
            return super()._build_request(options, **how)
        if (make := self._made.get(kind)) is not None:
            return make(body)
        request = super()._build_request(options, **how)
        if request.content == body:  # else this version encodes it in another way
            if len(self._made) >= KINDS:
                self._made.clear()
            self._made[kind] = _maker(request, self._client)
        return request

    def _kind(self, options: Any) -> Any:
        """Return what all but the body of a request depends on; None for one that is not like others."""
        given = vars(options)
        has_timeout = not isinstance(given.get("timeout", openai.NOT_GIVEN), openai.NotGiven)
        if has_timeout or self._idempotency_header or any(given.get(name) for name in _SPECIAL):
            return None
        parts = (tuple((given.get(name) or {}).items()) for name in ("headers", "security"))
        return options.method, options.url, self.api_key, *parts


def _encoded(options: Any) -> bytes | None:
    """Return the body of a request as the client encodes it; None if that takes more than JSON."""
    try:
        body = {**options.json_data, **(options.extra_json or {})}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, AttributeError):
        return None


def _maker(first: Any, client: Any) -> Callable[[bytes], Any]:
    """Return what makes requests like the ``first``, with other bodies."""
    headers = [header for header in first.headers.raw if header[0].lower() not in _OF_ONE]
    like: Any = type(first)
    make = partial(like, first.method, first.url, headers=headers, extensions=dict(first.extensions))
    return lambda body: make(content=body, cookies=client.cookies)


class Client:
    """Calls one model of one service."""

    def __init__(self, target: Target, timeout: float | None, max_retries: int) -> None:
        self._target = target
        about = arguments(target, timeout, max_retries)
        self._own = OwnClient(partial(openai.OpenAI, **about))
        self._shared = SharedClients(partial(AsyncOpenAI, **about), openai.DefaultAsyncHttpxClient)

    def warm(self) -> None:
        """Create the vendor's client, and import the modules that its first call needs."""
        platform.platform()  # each request says it, and to find it out Python starts a process, as long as three calls
        client = self._shared.warm() if waiting.shared else self._own.get()
        client.chat.completions  # noqa: B018 - reading it imports it
        if waiting.shared and not _is_instrumented():
            _form()

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
        async with self._shared.one() as client:
            if not request.stream and not _is_instrumented():
                return _answered(await _asked(client, self._body(request)))
            taken = as_taken(client.chat.completions.create, self._body(request))
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


def _asked(client: Any, body: dict[str, Any]) -> Any:
    """Ask without what the client does to each message and each argument: more than half of what a call costs.

    What is given as ``extra_body`` is sent as it is, and takes the place of an argument: in the client's order, the
    request is the same in each byte.
    """
    taken = as_taken(openai.resources.chat.AsyncCompletions.create, body)  # one function, where each client has its own
    form = _form()
    if form is None or not all(form.sends_as_given(name, value) for name, value in taken.items()):
        own = {name: taken[name] for name in ("messages", "tools") if name in taken}
        taken.update(dict.fromkeys(own, ()), extra_body={**own, **taken.get("extra_body", {})})
        return client.chat.completions.with_raw_response.create(**taken)
    sent = {name: taken.pop(name) for name in form.names if name in taken}
    given = {_NOT_IN_BODY[name]: value for name, value in taken.items() if value is not None or name == "timeout"}
    options = {**form.options, **given}
    sent |= options.pop("extra_json", {})
    options["headers"] = {**options.get("headers", {}), **_AS_IT_COMES}
    return client.post(form.path, cast_to=form.cast_to, body=sent, options=options)


def _answered(answer: Any) -> Completion:
    """Read the answer, without what the client makes of it."""
    return recorded.read("openai", False, answer.content) or read_openai(answer.parse())


class _Form(NamedTuple):
    """What the client's method sends for any arguments: their ``names`` in its order."""

    path: str
    names: tuple[str, ...]
    cast_to: Any
    options: dict[str, Any]

    def sends_as_given(self, name: str, value: Any) -> bool:
        """Whether it would send an argument as it is given."""
        return name in _AS_SENT or (name in self.names and isinstance(value, str | int | float))


@functools.cache
def _form() -> _Form | None:
    """Return the form of a request; None if it is unknown."""
    create: Any = openai.resources.chat.Completions.create
    resource = SimpleNamespace(
        _post=lambda path, *, body, cast_to, options, **_: _Form(path, tuple(body), cast_to, options)
    )
    with contextlib.suppress(Exception):  # another version's is made otherwise
        form: _Form = create(resource, **dict.fromkeys((named(create) or set()) - set(_NOT_IN_BODY), ""))
        return form
    return None
