"""Uses of the tools of MCP servers are steps, whichever framework makes them: each passes ``ClientSession.call_tool``.

One that is made for the use of a tool that is a step already is no other step.
"""

import re
from collections.abc import Mapping
from typing import Any

from runner.journal.enclosing import current_journal, current_step
from runner.journal.tool_uses import Use, record_uses


def install(module: Any) -> None:
    """Have the uses of its sessions recorded, once in a process."""
    record_uses(module.ClientSession, "call_tool", _about)


def _about(session: Any, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Use | None:  # noqa: ARG001
    found = current_journal()
    if found is None or found[1] or _is_being_used(name):
        return None
    return Use(name, dict(arguments or {}))


def _is_being_used(name: str) -> bool:
    """Whether the step at hand is the use of a tool with this name; frameworks write it as they like to, and put a
    server's name before it."""
    frame = current_step.get()
    if frame is None or frame.entry is None or frame.entry.kind != "tool":
        return False
    return _plain(name) in _plain(frame.key.rpartition("/")[2].partition("(")[0])


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()
