"""The context objects that hooks receive."""

import sys
from typing import Any

from runner.core.errors import TaskError
from runner.journal.current_journal import current_journal

_PROMPT = "Press Enter to continue, or provide feedback:"


class _Asking:
    def request_human_input(self, prompt: str, default_message: str = _PROMPT) -> str:
        """Ask a person and return the answer: at the terminal, or by `runner answer`, for which the run waits."""
        found = current_journal()
        question = f"{prompt}\n{default_message}"

        def obtain(step: str) -> str | None:  # noqa: ARG001 - the port's name
            if found is not None and found[0].can_wait:
                return None
            if sys.stdin is None:
                raise TaskError(f"a hook asks {prompt!r}, and there is no terminal here")
            print(f"\n{prompt}\n{default_message}", flush=True)
            return input().strip()

        return (found[0].answer(question, obtain) if found is not None else obtain("") or "").strip()


class LLMCallHookContext(_Asking):
    """A model call: its ``messages`` (may be changed in place), agent, task, crew; afterwards its ``response``."""

    def __init__(
        self,
        executor: Any = None,
        response: str | None = None,
        messages: list[dict[str, Any]] | None = None,
        llm: Any = None,
        agent: Any = None,
        task: Any = None,
        crew: Any = None,
        iterations: int = 0,
    ) -> None:
        self.executor, self.response = executor, response
        self.messages: list[dict[str, Any]] = messages if messages is not None else []
        self.llm, self.agent, self.task, self.crew, self.iterations = llm, agent, task, crew, iterations
        for name in ("messages", "llm", "agent", "task", "crew", "iterations") if executor is not None else ():
            setattr(self, name, getattr(executor, name, None))


class ToolCallHookContext(_Asking):
    """A tool call: its ``tool_input`` (may be changed in place), agent, task, crew; afterwards its ``tool_result``."""

    def __init__(
        self,
        tool_name: str,
        tool_input: dict[str, Any],
        tool: Any,
        agent: Any = None,
        task: Any = None,
        crew: Any = None,
        tool_result: str | None = None,
        raw_tool_result: Any = None,
    ) -> None:
        self.tool_name, self.tool_input, self.tool = tool_name, tool_input, tool
        self.agent, self.task, self.crew = agent, task, crew
        self.tool_result, self.raw_tool_result = tool_result, raw_tool_result
