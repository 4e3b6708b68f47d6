"""What a client asked, read the same way whichever protocol it speaks."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Protocol = Literal["openai", "anthropic", "responses", "embeddings"]


@dataclass
class ModelRequest:
    """One request of a client: what it asked, and what became of it."""

    number: int  #: from 1, in the order they came
    protocol: Protocol
    path: str
    body: dict[str, Any]
    at: float = 0.0  #: when it came, in seconds since the epoch
    status: int | None = None  #: what it was answered with; None while its answer is being made up
    delivered: bool = False  #: whether the client was still there for all of the answer
    usage: tuple[int, int] = (0, 0)  #: tokens of prompt and completion, as they were told
    headers: dict[str, str] = field(default_factory=dict)  #: without the keys

    @property
    def model(self) -> str:
        """The model that was asked."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.body.get("stream"))

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in OpenAI's form, with text for content."""
        read = {"anthropic": _of_anthropic, "responses": _of_responses}.get(self.protocol, _of_openai)
        return read(self.body)

    @property
    def text(self) -> str:
        """The text of all messages, joined."""
        return "\n".join(message["content"] for message in self.messages)

    @property
    def last(self) -> str:
        """The text of the last message."""
        return self.messages[-1]["content"] if self.messages else ""

    @property
    def turn(self) -> int:
        """How often the model has answered in this conversation so far."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def results(self) -> list[str]:
        """The results of tools in this conversation so far."""
        return [message["content"] for message in self.messages if message["role"] == "tool"]

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools on offer: the schema of the arguments of each."""
        found = {}
        for tool in self.body.get("tools") or []:
            about = tool.get("function", tool)
            found[str(about.get("name"))] = about.get("parameters") or about.get("input_schema") or {}
        return found

    @cached_property
    def must_call(self) -> str | None:
        """The tool that has to be called; with "any tool", the first on offer."""
        choice = self.body.get("tool_choice")
        if choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any"):
            return next(iter(self.tools), None)
        if isinstance(choice, dict):
            return choice.get("name") or (choice.get("function") or {}).get("name")
        return None

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """The schema that the answer has to follow, if it has to."""
        wanted = self.body.get("response_format") or {}
        if self.protocol == "responses":
            wanted = (self.body.get("text") or {}).get("format") or {}
            wanted = {**wanted, "json_schema": wanted}
        if wanted.get("type") == "json_schema":
            return dict(wanted.get("json_schema", {}).get("schema") or {})
        return {"type": "object"} if wanted.get("type") == "json_object" else None

    @cached_property
    def digest(self) -> str:
        """Sixteen characters that name this body; the same for the same body."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """For a log: the request and what became of it."""
        return {
            "number": self.number, "protocol": self.protocol, "path": self.path, "at": self.at, "digest": self.digest,
            "status": self.status, "delivered": self.delivered, "usage": list(self.usage), "body": self.body,
        }  # fmt: skip


def text_of(content: Any) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, list):
        return "\n".join(text_of(part.get("text", part.get("content"))) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _of_openai(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**message, "content": text_of(message.get("content"))} for message in body.get("messages") or []]


def _of_anthropic(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if body.get("system"):
        found.append({"role": "system", "content": text_of(body["system"])})
    for message in body.get("messages") or []:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        said = [text_of(part.get("text")) for part in parts if part.get("type") == "text"]
        calls = [
            {"id": part["id"], "type": "function",
             "function": {"name": part["name"], "arguments": json.dumps(part.get("input") or {})}}
            for part in parts if part.get("type") == "tool_use"
        ]  # fmt: skip
        found += [
            {"role": "tool", "tool_call_id": part.get("tool_use_id"), "content": text_of(part.get("content"))}
            for part in parts
            if part.get("type") == "tool_result"
        ]
        if said or calls:
            one = {"role": message.get("role"), "content": "\n".join(said)}
            found.append({**one, "tool_calls": calls} if calls else one)
    return found


def _of_responses(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if body.get("instructions"):
        found.append({"role": "system", "content": text_of(body["instructions"])})
    given = body.get("input") or []
    calls: list[dict[str, Any]] | None = None
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {"id": item["call_id"], "type": "function", "function": {k: item[k] for k in ("name", "arguments")}}
            if calls is None:  # those that follow were said at once
                said = (
                    found.pop() if found and found[-1]["role"] == "assistant" else {"role": "assistant", "content": ""}
                )
                calls = []
                found.append({**said, "tool_calls": calls})
            calls.append(call)
            continue
        calls = None
        if kind == "function_call_output":
            content = text_of(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind == "message":
            found.append({"role": item.get("role", "user"), "content": text_of(item.get("content"))})
    return found
