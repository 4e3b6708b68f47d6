"""``human_input=True``, and flows that ask in a task: the run waits for a person without occupying a worker.

As CrewAI's provider of human input, it stops the task, which restarts with the answer and replays its journal.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from crewai.agents.parser import AgentFinish
from crewai.core.providers.human_input import SyncHumanInputProvider, reset_provider, set_provider
from crewai.flow.flow import Flow
from crewai.flow.flow_config import flow_config

from runner.crews.human_review import QUESTION
from runner.engine.work import Work


@contextlib.contextmanager
def asking(work: Work) -> Iterator[None]:
    """While this is open, agents in this context ask for human input through the run."""
    token = set_provider(_Asking(work))
    try:
        yield
    finally:
        reset_provider(token)


@contextlib.contextmanager
def asking_in_flows(work: Work) -> Iterator[None]:
    """While open, flows ask through the run: ``self.ask``, and ``@human_feedback`` without a provider.

    It is for a process with one task. CrewAI's own model finds out which label an answer means.
    """

    def request(
        flow: Any, message: str, output: Any, metadata: Any = None, emit: Any = None, method_name: str = ""
    ) -> str:
        about = {"task": work.key, "method": method_name, "flow": type(flow).__name__, "method_output": str(output)}
        more = {"emit": list(emit)} if emit else {"review": True}
        return work.journal.answer(message, lambda _: None, {**about, "metadata": metadata or {}, **more}).strip()

    before = flow_config.input_provider, Flow._request_human_feedback
    flow_config.input_provider = _AskingInFlows(work)
    Flow._request_human_feedback = request
    try:
        yield
    finally:
        flow_config.input_provider, Flow._request_human_feedback = before


class _AskingInFlows:
    """Answers ``self.ask(...)`` of a flow that a task kicks off."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def request_input(self, message: str, flow: Any, metadata: dict[str, Any] | None = None) -> str | None:  # noqa: ARG002 - CrewAI's names
        """Return the answer. Raises `InputRequired` while there is none."""
        return self._work.journal.answer(message, lambda _: None, {"task": self._work.key, "metadata": metadata or {}})


class _Asking(SyncHumanInputProvider):
    """Asks for feedback on an agent's answer until the person has no more."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def handle_feedback(self, formatted_answer: AgentFinish, context: Any) -> AgentFinish:
        """Return the answer that the person approved."""
        while said := self._ask(formatted_answer, context):
            context.messages.append(context._format_feedback_message(said))
            formatted_answer = context._invoke_loop()
        context.ask_for_human_input = False
        return formatted_answer

    async def handle_feedback_async(self, formatted_answer: AgentFinish, context: Any) -> AgentFinish:
        """The same for agents that run as coroutines."""
        while said := self._ask(formatted_answer, context):
            context.messages.append(context._format_feedback_message(said))
            formatted_answer = await context._ainvoke_loop()
        context.ask_for_human_input = False
        return formatted_answer

    def _ask(self, answer: AgentFinish, context: Any) -> str:
        """Return a person's feedback on an answer; "" if they approve. Raises `InputRequired` while there is none."""
        task, agent = context.task, context.agent
        about = {
            "task": self._work.key,
            "description": str(getattr(task, "description", "") or ""),
            "agent": str(getattr(agent, "role", "") or "").strip(),
            "method_output": self._get_output_string(answer),
            "review": True,
        }
        said = self._work.journal.answer(QUESTION, lambda _: None, about)
        return said if said.strip() else ""
