"""A small real model in this process, behind the model server's protocols (``pip install 'crew-runner[offline]'``).

llama.cpp's engine does the work (xllamacpp). What is added here is what a model of this size cannot do alone: it
is made to call one tool, with arguments that the tool's schema takes, before it answers in words.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.core.errors import MissingDependency
from runner.modelserver import Answer, Call, ModelRequest
from runner.modelserver.stubs import weights

CONTEXT = 8192  #: tokens that it takes
PROMPT = 6000  #: characters of a conversation that it is shown: it reads about 400 a second
LONGEST = 256  #: tokens of an answer, where nothing else is said
ROUNDS = 2  #: uses of tools in a conversation: left alone it would use none, or use them for ever
TEXT = 80  #: characters of a text in arguments and JSON, where the schema sets no limit

Message = dict[str, str]


def installed() -> bool:
    """Whether the engine is."""
    import importlib.util

    return importlib.util.find_spec("xllamacpp") is not None


def require() -> None:
    """Raise `MissingDependency` unless the engine is installed."""
    if not installed():
        raise MissingDependency(
            "the offline model needs xllamacpp, which is not installed: pip install 'crew-runner[offline]'"
        )


def make_ready(say: Callable[[str], None]) -> Path:
    """See to it that the offline model can be used on this machine; its file. Raises `MissingDependency`."""
    require()
    return weights.fetch(say)


class Engine:
    """The model; one answer at a time, on one thread: two on busy cores are far slower."""

    def __init__(self, model: Path) -> None:
        require()
        import xllamacpp

        about = xllamacpp.CommonParams()
        about.model.path = str(model)
        about.n_ctx, about.n_parallel, about.n_gpu_layers = CONTEXT, 1, 0
        about.verbosity, about.use_jinja, about.sampling.seed = 0, True, 1
        about.cpuparams.n_threads = about.cpuparams_batch.n_threads = 1
        self._engine = xllamacpp.Server(about)
        self._lock = threading.Lock()

    def __call__(self, request: ModelRequest) -> Answer:
        """The script of a `ModelServer`."""
        if request.protocol == "embeddings":
            return Answer()
        tool = _tool_to_call(request)
        asked: dict[str, Any] = {
            "messages": shortened(plain(request.messages)),
            "temperature": request.body.get("temperature") or 0,
            "max_tokens": min(request.body.get("max_tokens") or LONGEST, 1024),
            "repeat_penalty": 1.1,
        }
        if tool:
            asked["messages"] = _with_tools(asked["messages"], tool)
            asked["response_format"] = _format({"anyOf": [_call_of(name, schema) for name, schema in tool.items()]})
        elif request.schema is not None:
            asked["response_format"] = _format({"type": "object", **request.schema})
        with self._lock:
            said = self._engine.handle_chat_completions(asked)
        said = json.loads(said) if isinstance(said, str | bytes) else said
        if "choices" not in said:
            return Answer(str(said.get("error", {}).get("message", said)), status=400)
        return _answer(said, bool(tool))


def _answer(said: dict[str, Any], calling: bool) -> Answer:
    text = (said["choices"][0]["message"].get("content") or "").strip()
    used = (int(said["usage"]["prompt_tokens"]), int(said["usage"]["completion_tokens"]))
    if calling:
        try:
            call = json.loads(text)
            return Answer(calls=[Call(str(call["name"]), dict(call["arguments"]))], usage=used)
        except (ValueError, KeyError, TypeError):  # it ran out of tokens
            return Answer(text, usage=used)
    return Answer(text, usage=used)


def _tool_to_call(request: ModelRequest) -> dict[str, dict[str, Any]]:
    """The tools of which one has to be called now; none twice, unless the client insists."""
    if request.body.get("tool_choice") == "none":
        return {}
    if isinstance(request.body.get("tool_choice"), dict) and request.must_call in request.tools:
        return {request.must_call: request.tools[request.must_call]}
    if request.must_call or len(request.results) < ROUNDS:
        made = {call["function"]["name"] for message in request.messages for call in message.get("tool_calls") or ()}
        return {name: schema for name, schema in request.tools.items() if request.must_call or name not in made}
    return {}


def _call_of(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "required": ["name", "arguments"], "additionalProperties": False,
        "properties": {"name": {"const": name}, "arguments": {"type": "object", **schema}},
    }  # fmt: skip


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": bounded(schema)}}


def bounded(schema: Any) -> Any:
    """The schema with a limit for each text and list: else a small model may never come to their end."""
    if isinstance(schema, list):
        return [bounded(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs", "definitions")  # what stands in them has names of its own, "title" perhaps
    found = {
        name: {key: bounded(value) for key, value in one.items()} if name in named else bounded(one)
        for name, one in schema.items()
        if name not in ("default", "title", "examples")
    }
    if found.get("type") == "string" and not {"enum", "const", "format", "pattern", "maxLength"} & found.keys():
        found["maxLength"] = TEXT
    if found.get("type") == "array" and "maxItems" not in found:
        least = found.get("minItems")
        found["maxItems"] = max(3, least) if isinstance(least, int) else 3
    return found


def plain(messages: list[dict[str, Any]]) -> list[Message]:
    """The conversation without tools in it: its template knows none, and it would copy their JSON."""
    found: list[Message] = []
    for message in messages:
        content = str(message["content"])
        if message["role"] == "tool":
            found.append({"role": "user", "content": f"Information: {content}"})
        elif content:
            role = message["role"] if message["role"] in ("system", "assistant") else "user"
            found.append({"role": role, "content": content})
    task = next((str(message["content"]) for message in messages if message["role"] == "user"), "")
    if messages and messages[-1]["role"] == "tool":
        found.append({"role": "user", "content": f"Use this information. {task}"})
    return found or [{"role": "user", "content": "Say hello."}]


def shortened(messages: list[Message], most: int = PROMPT) -> list[Message]:
    """Return the messages with the longest of them cut until all fit."""
    sizes = [len(message["content"]) for message in messages]
    while sum(sizes) > most and max(sizes) > 200:
        longest = sizes.index(max(sizes))
        sizes[longest] = max(200, sizes[longest] - (sum(sizes) - most), sizes[longest] // 2)
    return [{**message, "content": message["content"][:size]} for message, size in zip(messages, sizes, strict=True)]


def _with_tools(messages: list[Message], tools: dict[str, dict[str, Any]]) -> list[Message]:
    listed = [f"{name}({', '.join(schema.get('properties') or {})})" for name, schema in tools.items()]
    return [*messages, {"role": "user", "content": f"Call one of these tools, as JSON: {'; '.join(listed)}"}]
