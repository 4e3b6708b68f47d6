"""Tool calls as text, for models without tool calling: describes the tools, and parses calls from the answer."""

import json
import re
from collections.abc import Sequence
from typing import Any

from runner.llm.clients.completion import tool_call

Message = dict[str, Any]

_ACTION = re.compile(r"^\s*Action:\s*(?P<name>[^\n]+)\n+\s*Action Input:\s*(?P<input>.*)", re.MULTILINE | re.DOTALL)
_AFTER = re.compile(r"^\s*(Observation|Thought|Final Answer|Action):", re.MULTILINE)


def explained(tools: Sequence[Message]) -> str:
    """Return the text that describes the tools to a model without tool calling."""
    lines = ["You may use these tools:"]
    for tool in tools:
        function = tool["function"]
        lines.append(f"- {function['name']}: {function['description']}")
        lines.append(f"  its arguments: {json.dumps(function['parameters'], ensure_ascii=False)}")
    lines += [
        "",
        "To use one, answer with exactly these two lines, and nothing after them:",
        "Action: the tool's name",
        "Action Input: its arguments as one JSON object",
        "",
        "You are then told what it gave. When you know enough, answer with:",
        "Final Answer: your answer",
    ]
    return "\n".join(lines)


def format_messages(messages: Sequence[Message], tools: Sequence[Message]) -> list[Message]:
    """Convert a conversation for such a model: tool calls and results become text."""
    found: list[Message] = []
    for message in messages:
        said = str(message.get("content") or "")
        if message["role"] == "tool":
            found.append({"role": "user", "content": f"Observation: {said}"})
        elif message.get("tool_calls"):
            calls = "\n".join(
                f"Action: {call['function']['name']}\nAction Input: {call['function']['arguments']}"
                for call in message["tool_calls"]
            )
            found.append({"role": "assistant", "content": f"{said}\n{calls}".strip()})
        else:
            found.append(dict(message))
    if tools:
        at = next((i for i, message in enumerate(found) if message["role"] == "system"), None)
        if at is None:
            found.insert(0, {"role": "system", "content": explained(tools)})
        else:
            found[at]["content"] = f"{found[at]['content']}\n\n{explained(tools)}"
    return found


def read(text: str, number: int) -> Message:
    """Parse such a model's answer as a message; ``number``, its index in the conversation, makes the id of a call."""
    found = _ACTION.search(text)
    if found is None or "Final Answer:" in text[: found.start()]:
        return {"role": "assistant", "content": text}
    given = found["input"]
    if after := _AFTER.search(given):
        given = given[: after.start()]
    call = tool_call(number, None, found["name"].strip().strip("`*\"'"), given.strip().strip("`").strip())
    return {"role": "assistant", "content": text[: found.start()].strip(), "tool_calls": [call]}
