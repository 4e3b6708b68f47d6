"""Uses of the tools of MCP servers are steps, whichever framework makes them: each passes ``ClientSession.call_tool``.

One that is made for the use of a tool that is a step already is no other step. What a server asks the user meanwhile
(elicitation), the run asks a person, where the author's code answers nothing itself: the tool is used again with the
answer.
"""

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from runner.core.errors import InputRequired
from runner.journal import steps
from runner.journal.current_journal import current_journal
from runner.journal.steps import current_step
from runner.journal.tool_uses import Use, record_uses
from runner.llm.recording.wrapping import wrap


def install(module: Any) -> None:
    """Have the uses of its sessions recorded, and people asked, once in a process."""
    session = module.ClientSession
    if not hasattr(session.call_tool, "records_uses") and hasattr(module, "_default_elicitation_callback"):
        wrap(session, "__init__", functools.partial(_asking, module))
        wrap(session, "call_tool", _raising)
    record_uses(session, "call_tool", _about)


def _asking(module: Any, theirs: Any) -> Any:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        theirs(self, *args, **kwargs)
        if self._elicitation_callback is module._default_elicitation_callback and current_journal() is not None:
            self._elicitation_callback = functools.partial(_elicited, self, module)

    return init


def _raising(theirs: Any) -> Any:
    async def call_tool(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await theirs(self, *args, **kwargs)
        finally:  # its server heard that the user went away
            if (asked := vars(self).pop("_runner_asked", None)) is not None:
                raise asked

    return call_tool


async def _elicited(session: Any, module: Any, context: Any, params: Any) -> Any:
    found = current_journal()
    schema = getattr(params, "requestedSchema", None) or getattr(params, "requested_schema", None)
    if found is None or schema is None:  # a page that the user has to open is no question of a run
        return await module._default_elicitation_callback(context, params)
    wanted = schema.get("properties") or {}
    about = {"schema": schema} if wanted else {"emit": ["accept", "decline"]}
    try:
        answer = found[0].answer(params.message, lambda _: None, about)
    except InputRequired as asked:
        session._runner_asked = asked
        return module.types.ElicitResult(action="cancel")
    content = _content(answer, wanted)
    if content is None:
        return module.types.ElicitResult(action="decline")
    return module.types.ElicitResult(action="accept", content=content)


def _content(answer: str, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields that a person gave: a JSON object, or the value of the only one; None if they decline."""
    if answer.partition(":")[0].strip().casefold() == "decline":
        return None
    try:
        given = json.loads(answer)
    except ValueError:
        given = answer
    if isinstance(given, dict) or not wanted:
        return given if isinstance(given, dict) else {}
    name, about = next(iter(wanted.items()))
    return {name: answer if about.get("type", "string") == "string" else given}


def _about(session: Any, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Use | None:  # noqa: ARG001 - the client's own names
    found, given = current_journal(imports=True), dict(arguments or {})
    if found is None or found[1] or _is_being_used(name, given):
        return None
    return Use(name, given)


def _is_being_used(name: str, arguments: dict[str, Any]) -> bool:
    """Whether the step at hand is the use of this tool.

    Frameworks separate the words of its name as they like to; where one puts a server's name before them, the arguments
    have to be these, too.
    """
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
