"""The tool calls of one round, run concurrently. Each is a step, recorded before the model gets its result.

An error is a recorded result, too (an unknown tool, wrong arguments, an exception): the model may try again.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from runner.agents.agent_state import AgentState
from runner.agents.concurrently import run_concurrently
from runner.agents.hook_calls import HookedUse
from runner.agents.machine import ERROR
from runner.agents.tools import BadArguments, BaseTool, arguments_of, tool_name
from runner.bundles import relative_paths
from runner.core.errors import DiskTrouble, ModelError, RelativePath, Stop, TaskError, one_line
from runner.core.idempotency import keyed
from runner.core.redaction import redact
from runner.engine.tool_events import ToolObserver
from runner.events.bus import event_bus
from runner.events.call_events import ToolSelectionErrorEvent, ToolUsageErrorEvent, ToolValidateInputErrorEvent
from runner.hooks import registry

Message = dict[str, Any]

ERROR_LENGTH = 1000  #: characters of an exception that a model is told


def use(
    state: AgentState, calls: Sequence[Message], first: int, on_result: Callable[[Message, str], None]
) -> list[Message]:
    """Make these tool calls and return their results as messages, in order. ``on_result`` gets each real one."""
    limited = _limited(state, calls)
    uses = [_Use(state, call, first + i, on_result, reason=limited.get(i)) for i, call in enumerate(calls)]
    return run_concurrently([one.message for one in uses])


def recall(state: AgentState) -> None:
    """Add the tool calls of a restored conversation to the journal, which has not seen them."""
    answered = {message["tool_call_id"] for message in state.conversation.messages if message["role"] == "tool"}
    calls = [call for message in state.conversation.messages for call in message.get("tool_calls") or ()]
    uses = [_Use(state, call, 0, lambda *_: None, reason=None) for call in calls if call["id"] in answered]
    done = Counter(step for one in uses if (step := one.step()) is not None)
    for (name, given), times in done.items():
        state.journal.mark_done(name, (json.loads(given),), times)


class _Use:
    """One tool call."""

    def __init__(
        self,
        state: AgentState,
        call: Message,
        number: int,
        on_result: Callable[[Message, str], None],
        *,
        reason: str | None,
    ) -> None:
        self._state, self._call, self._number, self._on_result, self._reason = state, call, number, on_result, reason
        self._given = call["function"]["arguments"]
        self.name = str(call["function"]["name"])

    def step(self) -> tuple[str, str] | None:
        """The step's name and its identity as JSON; None if the call is not a step."""
        tool = self._tool()
        try:
            given = None if tool is None else json.dumps(_as_given(arguments_of(tool, self._given)))
            return None if given is None else (f"tool {self.name}", given)
        except BadArguments:
            return None

    def _tool(self) -> BaseTool | None:
        return self._state.tools.get(self.name) or self._state.tools.get(tool_name(self.name))

    def message(self) -> Message:
        """The text for the model."""
        return {"role": "tool", "tool_call_id": self._call["id"], "name": self.name, "content": self._result()}

    def _result(self) -> str:
        state = self._state
        tool = self._tool()
        if tool is None:
            there = ", ".join(state.tools) or "none"
            return self._refused(ToolSelectionErrorEvent, f"there is no tool {self.name!r}; there are: {there}")
        if self._reason is not None:
            return self._refused(ToolUsageErrorEvent, self._reason)
        try:
            arguments = arguments_of(tool, self._given)
        except BadArguments as error:
            return self._refused(ToolValidateInputErrorEvent, str(error))
        hooked = HookedUse(state, tool, self.name, self._number) if registry.any_here() else None
        if hooked is not None:
            arguments, refused = hooked.before(arguments)
            if refused is not None:
                return refused
        key = f"{state.origin}:{self._number + 1}" if state.origin else ""
        watch = _Watch(state, tool, self.name, arguments)

        def run() -> str:
            with keyed(key):
                return self._run(tool, arguments)

        # It is identified by the JSON of its arguments, and the tool gets them as objects
        about: dict[str, Any] = {"kind": "tool", "model": self.name, "counted": not tool.composed}
        step = state.journal.step(f"tool {self.name}", lambda _: run(), (_as_given(arguments),), {}, watch, **about)
        text = str(step)
        if watch.really_used:
            self._on_result(self._call, text)
        return text if hooked is None else hooked.after(arguments, text)

    def _run(self, tool: BaseTool, arguments: dict[str, Any]) -> str:
        try:
            return _as_text(tool.run(**arguments))
        except Stop:
            raise
        except Exception as error:
            if tool.composed and isinstance(error, ModelError):
                raise  # a coworker's model is away, which is not for another model to judge
            if isinstance(error, DiskTrouble):
                raise  # nothing that a model could do something about
            if isinstance(error, RelativePath):
                raise TaskError(f"the tool {self.name!r}: {error}") from error
            if relative_paths.is_led_astray(error):
                raise TaskError(f"the tool {self.name!r}: {one_line(error)}; {relative_paths.ADVICE}") from error
            text = redact(" ".join(str(error).split()), getattr(self._state.model, "api_key", None))
            return f"{ERROR}{type(error).__name__}: {text[:ERROR_LENGTH]}"

    def _refused(self, kind: Any, why: str) -> str:
        """The call is refused. Nothing is recorded, because it is refused again with the same text."""
        about = {"tool_name": self.name, "tool_args": self._given, "agent": self._state.agent, **self._state.about}
        event_bus.emit(self._state.agent, kind(error=why, **about))
        return ERROR + why


class _Watch(ToolObserver):
    """Reports a tool call that is really made, with its arguments and its agent."""

    def __init__(self, state: AgentState, tool: BaseTool, name: str, arguments: dict[str, Any]) -> None:
        super().__init__(state.task, name, tool)
        self._about |= {"tool_args": arguments, "agent": state.agent, **state.about}
        self.really_used = False

    def ended(self, value: Any) -> None:
        if str(value).startswith(ERROR):
            self.failed(str(value).removeprefix(ERROR))
        else:
            super().ended(str(value))
        self.really_used = True


def _as_given(arguments: dict[str, Any]) -> Any:
    """The arguments in the form that identifies the step."""
    return to_jsonable_python(arguments, fallback=repr, bytes_mode="base64")


def _limited(state: AgentState, calls: Sequence[Message]) -> dict[int, str]:
    """The calls that exceed their tool's ``max_usage_count``, by position."""
    if not any(tool.max_usage_count is not None for tool in state.tools.values()):
        return {}
    before = [call for message in state.conversation.messages[:-1] for call in message.get("tool_calls") or ()]
    used = Counter(call["function"]["name"] for call in before)
    found = {}
    for i, call in enumerate(calls):
        name = call["function"]["name"]
        tool = state.tools.get(name)
        most = tool.max_usage_count if tool is not None else None
        if most is not None and used[name] >= most:
            found[i] = f"the tool {name!r} was used {most} times, and may not be used again"
        used[name] += 1
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(to_jsonable_python(value, fallback=str, bytes_mode="base64"), ensure_ascii=False)
