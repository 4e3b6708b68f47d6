"""The demo's answers: made of the question alone, the same whoever asks, and marked as what they are."""

import json
import re
from typing import Any

from runner.modelserver import Answer, Call, ModelRequest
from runner.modelserver.schemas import instance_of

MARK = "[DEMO]"
MOST_CALLS = 3  #: rounds of tool calls in one conversation

_ABOUT_OTHERS = re.compile(r"(delegate|ask)[ _-]\w+[ _-]to|^ask_question|^delegate_work", re.IGNORECASE)


def answer(request: ModelRequest) -> Answer:
    """Answer as the demo: use each tool once, then sum up the task and the tools' results."""
    wanted = request.must_call or _next_tool(request)
    if wanted is not None and wanted in request.tools:
        return Answer(calls=[Call(wanted, _arguments(request, wanted))])
    if request.schema is not None:
        return Answer(json.dumps(instance_of({"type": "object", **request.schema}, MARK)))
    return Answer(_summary(request))


def _next_tool(request: ModelRequest) -> str | None:
    """The first tool that was not used yet. Other agents are asked only where there is nothing else to use."""
    if not request.tools or request.body.get("tool_choice") == "none":
        return None
    made = [call["function"]["name"] for message in request.messages for call in message.get("tool_calls") or ()]
    own = [name for name in request.tools if not _ABOUT_OTHERS.search(name)] or list(request.tools)[:1]
    left = [name for name in own if name not in made]
    return left[0] if left and len(made) < MOST_CALLS else None


def _arguments(request: ModelRequest, tool: str) -> dict[str, Any]:
    """Arguments that the tool's schema takes; for texts, what the conversation offers."""
    schema = {"type": "object", **request.tools[tool]}
    found = instance_of(schema, MARK)
    for name, about in (schema.get("properties") or {}).items():
        if name in found and found[name] == MARK:
            found[name] = _fitting(request, tool, name, about)
    return dict(found)


def _fitting(request: ModelRequest, tool: str, name: str, about: dict[str, Any]) -> str:
    if about.get("examples"):
        return str(about["examples"][0])
    if name == "coworker":
        return _coworker(request, tool)
    if re.search(r"file|path|name|document|source", name):
        files = re.findall(r"[\w./-]*\w\.[a-z]{2,4}\b", "\n".join([*reversed(request.results), _task(request)]))
        if files:
            return str(files[0])
    return _subject(request)


def _coworker(request: ModelRequest, tool: str) -> str:
    about: dict[str, Any] = next(
        (t.get("function", t) for t in request.body["tools"] if t.get("function", t).get("name") == tool), {}
    )
    found = re.search(r"coworkers?:?\s*\[?([^\],\n]+)", str(about.get("description", "")))
    return found[1].strip() if found else "coworker"


def _task(request: ModelRequest) -> str:
    """Return the task of the conversation: the first message from a person or the crew."""
    return next((m["content"] for m in request.messages if m["role"] == "user"), "")


def _subject(request: ModelRequest) -> str:
    quoted = re.findall(r"[\"“']([^\"“”'\n]{2,40})[\"”']", _task(request))
    words = re.findall(r"[A-Za-z][\w-]{3,}", _first_line(_task(request)))
    return str(quoted[0]) if quoted else str(max(words, key=len)) if words else "demo"


def _first_line(text: str, most: int = 160) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _summary(request: ModelRequest) -> str:
    system = next((m["content"] for m in request.messages if m["role"] == "system"), "")
    role = _first_line(system).removeprefix("You are ").rstrip(".") or "an agent without a role"
    lines = [f"{MARK} No model wrote this. A model would answer here as {role}."]
    lines.append(f"It was asked: {_first_line(_task(request)) or 'nothing'}")
    lines += [f"A tool gave: {_first_line(result)}" for result in request.results]
    return "\n".join(lines)
