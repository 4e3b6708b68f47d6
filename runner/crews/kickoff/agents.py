"""An agent's kickoff in this process: asked without a crew."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from runner.agents import Agent, conversation, loop, mcp, structure
from runner.agents.job import Job
from runner.agents.llm_guardrail import verdict_of
from runner.core import output as outputs
from runner.core.errors import BadInput
from runner.core.idempotency import origin, originating
from runner.core.output import LiteAgentOutput, TaskOutput
from runner.crews.kickoff.attempts import KeptConversation
from runner.crews.native_task import describe
from runner.engine.attempt import until_passed
from runner.engine.local import StateCancelScope, Steps
from runner.events.bus import event_bus
from runner.events.scope import push_event_scope
from runner.events.work_events import (
    LiteAgentExecutionCompletedEvent,
    LiteAgentExecutionErrorEvent,
    LiteAgentExecutionStartedEvent,
)
from runner.journal.cancellation.timing import timed
from runner.journal.enclosing import code_here, nest
from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal
from runner.llm.recording import journaled
from runner.snapshots.progress import Progress
from runner.snapshots.resolve import inside
from runner.snapshots.resuming import is_open
from runner.snapshots.runtime import RuntimeState
from runner.snapshots.scope import running

_KEY = "kickoff"  # an agent's conversation stands where a crew has its tasks'


@dataclass(frozen=True)
class AgentRequest:
    """What an agent is asked."""

    agent: Agent
    messages: list[dict[str, Any]]
    response_format: type[BaseModel] | None


def prepare_asking(
    agent: Agent,
    messages: str | Sequence[Mapping[str, Any]],
    response_format: type[BaseModel] | None,
    input_files: Mapping[str, Any] | None,
) -> AgentRequest:
    """What to ask, checked."""
    if input_files:
        raise BadInput("input_files are not supported yet: put their relevant content in the message")
    return AgentRequest(agent, conversation.as_messages(messages), response_format)


def ask(asking: AgentRequest) -> LiteAgentOutput:
    """Run the prompt and return the answer. A restored agent that is asked the same continues its conversation."""
    agent = asking.agent
    with running(agent, asking.messages) as state, inside(agent):
        return _Asked(asking, state).complete()


class _Asked:
    def __init__(self, asking: AgentRequest, state: RuntimeState | None) -> None:
        self._asking, self._state = asking, state
        known = state.progress.get(id(asking.agent)) if state is not None and state.restored else None
        same = known is not None and known.given == asking.messages
        self._progress = known if known is not None and same else Progress(given=asking.messages)
        self._lock: AbstractContextManager[Any] = state.lock if state is not None else threading.RLock()
        if state is not None:
            state.progress[id(asking.agent)] = self._progress

    def complete(self) -> LiteAgentOutput:
        """Run to the answer."""
        agent, progress = self._asking.agent, self._progress
        if _KEY in progress.outputs:  # it was answered, and nothing else is asked
            return self._as_output(progress.outputs[_KEY].raw)
        about: dict[str, Any] = {
            "agent_id": str(agent.id),
            "agent_role": agent.role,
            "agent_info": {"role": agent.role},
        }
        self._begin(about)
        cancel_scope = StateCancelScope(self._lock)
        flying = progress.task(_KEY)
        said = KeptConversation(flying, self._lock)
        asked = nest("agent", agent.role, agent.goal, self._asking.messages)
        steps = Steps(flying.steps, asked, _KEY)
        journal = Journal(steps.recorded, steps, cancel_scope, watched=True, replay_from_start=False, code=code_here())
        journal.pacing = lambda: agent.pace
        if not said.messages:
            said.say(*self._told(journal))
        try:
            with (
                timed(cancel_scope, agent.max_execution_time),
                journaled(journal),
                originating(self._origin(asked)),
                mcp.connections(),
            ):
                tools = [*agent.tools, *mcp.tools_for(agent.mcps, agent=agent, journal=journal)]
                job = loop.job_for(agent, said, journal, tools=tools, response_model=self._asking.response_format)
                output = self._as_output(self._checked(job), said.messages, job.usage)
        except BaseException as error:
            event_bus.emit(agent, LiteAgentExecutionErrorEvent(error=describe(error, agent), **about))
            raise
        finally:
            journal.close()
            steps.end(journal.take_replayed())
        with cancel_scope.write():
            progress.outputs[_KEY] = TaskOutput(name=_KEY, raw=output.raw, agent=agent.role)
            event_bus.emit(agent, LiteAgentExecutionCompletedEvent(output=output, usage=output.usage_metrics, **about))
        return output

    def _checked(self, job: Job) -> str:
        """The answer that passes the agent's guardrail. Raises `GuardrailFailed`."""
        agent = job.agent

        def check(text: str, failed: int) -> tuple[str, str | None]:  # noqa: ARG001 - the loop's name
            if agent.guardrail is None:
                return text, None
            output = self._as_output(text, job.conversation.messages)
            passed, found = verdict_of(agent.guardrail, output, agent, job.journal)
            if not passed:
                return text, str(found)
            return text if found is None or isinstance(found, LiteAgentOutput) else outputs.from_value(found)[0], None

        def object_to(why: str) -> None:
            job.conversation.say(conversation.object_to(why))

        whose = f"the answer of {agent.role!r}"
        return until_passed(partial(loop.work, job), check, agent.guardrail_max_retries, object_to, whose)

    def _told(self, journal: Journal) -> list[dict[str, Any]]:
        """What the conversation begins with."""
        model, messages = self._asking.response_format, [dict(one) for one in self._asking.messages]
        if model is not None:
            messages[-1]["content"] = f"{messages[-1]['content']}\n\n{structure.wanted(model)}"
        return [conversation.introduce(self._asking.agent, str, journal), *messages]

    def _origin(self, asked: ChildJournal | None) -> str:
        """What the keys of its tools begin with: the same when it is taken up again, inside of a task or not."""
        outer = origin()
        return f"{outer}/{asked.name}" if outer and asked is not None else str(self._progress.kickoff_event_id)

    def _begin(self, about: dict[str, Any]) -> None:
        agent, progress = self._asking.agent, self._progress
        if is_open(self._state, progress.kickoff_event_id):
            push_event_scope(progress.kickoff_event_id or "", "lite_agent_execution_started")
            agent.kickoff_event_id = progress.kickoff_event_id
            return
        event = LiteAgentExecutionStartedEvent(messages=self._asking.messages, tools=agent.tools, **about)
        agent.kickoff_event_id = agent.checkpoint_kickoff_event_id = progress.kickoff_event_id = event.event_id
        event_bus.emit(agent, event)

    def _as_output(
        self, raw: str, messages: Sequence[dict[str, Any]] = (), usage: Mapping[str, int] | None = None
    ) -> LiteAgentOutput:
        model, agent = self._asking.response_format, self._asking.agent
        return LiteAgentOutput(
            raw=raw,
            pydantic=None if model is None else model.model_validate_json(raw),
            agent_role=agent.role,
            usage_metrics=dict(usage) if usage else None,
            messages=[dict(one) for one in messages],
        )
