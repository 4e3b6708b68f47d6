"""Uses of the tools of MCP servers are steps, whichever framework makes them: each passes ``ClientSession.call_tool``.

One that is made for the use of a tool that is a step already is no other step.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from runner.journal import steps
from runner.journal.enclosing import current_journal
from runner.journal.steps import current_step
from runner.journal.tool_uses import Use, record_uses


def install(module: Any) -> None:
    """Have the uses of its sessions recorded, once in a process."""
    record_uses(module.ClientSession, "call_tool", _about)


def _about(session: Any, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Use | None:  # noqa: ARG001
    found, given = current_journal(), dict(arguments or {})
    if found is None or found[1] or _is_being_used(name, given):
        return None
    return Use(name, given)


def _is_being_used(name: str, arguments: dict[str, Any]) -> bool:
    """Whether the step at hand is the use of this tool. Frameworks separate the words of its name as they like to;
    where one puts a server's name before them, the arguments have to be these, too."""
    frame = current_step.get()
    if frame is None or frame.entry is None or frame.entry.kind != "tool":
        return False
    step = frame.key.rpartition("/")[2].rpartition("#")[0]
    used = step.partition("(")[0].removeprefix("tool ")
    words, tool_words = _words(used), _words(name)
    if words == tool_words:
        return True
    return bool(tool_words) and words[-len(tool_words) :] == tool_words and step in _steps(used, arguments)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())


def _steps(name: str, arguments: dict[str, Any]) -> list[str]:
    """What the use of a tool with these arguments is known by, in each way in which frameworks give them."""
    texts = json.dumps(arguments), json.dumps(arguments, separators=(",", ":"))
    ways: tuple[Any, ...] = (arguments, [[], arguments], [[arguments], {}], *texts)
    return [steps.identity(f"tool {name}", (way,), {}) for way in ways]
