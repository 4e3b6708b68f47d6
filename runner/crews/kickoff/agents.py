"""`Agent.kickoff()` in this process, without a crew."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

from runner.agents import Agent, conversation, loop, mcp, structured_output
from runner.agents.llm_guardrail import verdict_of
from runner.core import output as outputs
from runner.core.errors import BadInput
from runner.core.idempotency import origin, originating
from runner.core.jobs import Claim, Job
from runner.core.ledger import Counters
from runner.core.output import LiteAgentOutput, TaskOutput
from runner.core.plan import Plan, PlannedTask
from runner.crews.kickoff.crews import KeptConversation
from runner.crews.native_task import describe
from runner.engine.adapter import Adapter
from runner.engine.attempt import Loaded, Retries, until_passed
from runner.engine.decisions import Commit, Decision
from runner.engine.local import LocalAttempt, LocalTasks, Steps
from runner.engine.work import Conversation, Work
from runner.events import work_events as events
from runner.events.bus import event_bus
from runner.events.scope import push_event_scope
from runner.journal.current_journal import nest
from runner.journal.journal import Journal
from runner.journal.rate_limit import Pacer
from runner.snapshots.progress import Progress
from runner.snapshots.resolve import inside
from runner.snapshots.resuming import is_open
from runner.snapshots.runtime import RuntimeState
from runner.snapshots.scope import running

P = ParamSpec("P")
R = TypeVar("R")

_ONCE: Retries = 0, 0.0
_KEY = "kickoff"  # an agent's conversation stands where a crew has its tasks'


@dataclass(frozen=True)
class AgentRequest:
    """An agent, the messages it is asked and the model of its answer."""

    agent: Agent
    messages: list[dict[str, Any]]
    response_format: type[BaseModel] | None


def prepare_asking(
    agent: Agent,
    messages: str | Sequence[Mapping[str, Any]],
    response_format: type[BaseModel] | None,
    input_files: Mapping[str, Any] | None,
) -> AgentRequest:
    """Convert what the agent is asked to messages. Raises `BadInput` for ``input_files``."""
    if input_files:
        raise BadInput("input_files are not supported yet: put their relevant content in the message")
    return AgentRequest(agent, conversation.as_messages(messages), response_format)


def ask(asking: AgentRequest) -> LiteAgentOutput:
    """Run the prompt and return the answer. A restored agent that is asked the same continues its conversation."""
    agent = asking.agent
    with running(agent, asking.messages) as state, inside(agent):
        return AgentTask(asking, state).complete()


class AgentAdapter(Adapter):
    """Plans the kickoff of an agent as one task, and performs it."""

    name = "agent"

    def accepts(self, thing: object) -> bool:
        """Whether this is an `AgentTask`."""
        return isinstance(thing, AgentTask)

    def plan(self, crew: "AgentTask", name: str) -> Plan:
        """Return a plan of one task, with the agent's ``max_execution_time`` as its timeout."""
        return Plan(name, (PlannedTask(_KEY, timeout=crew.agent.max_execution_time),))

    def perform(self, crew: "AgentTask", work: Work) -> str:
        """Have the agent answer, from where its conversation stands. Returns the answer as it is stored."""
        return outputs.dump(crew.answer(work.conversation, work.journal), None)


AGENT = AgentAdapter()


class AgentTask(LocalTasks):
    """One kickoff of an agent. ``progress`` is what a checkpoint holds of it; ``usage`` counts the tokens used here."""

    adapter = AGENT.name

    def __init__(self, asking: AgentRequest, state: RuntimeState | None) -> None:
        agent, messages = asking.agent, asking.messages
        super().__init__(
            partial(AgentAttempt, self),
            state.lock if state is not None else threading.RLock(),
            nest("agent", agent.role, agent.goal, messages),
        )
        self.agent, self.crew_name, self.inputs = agent, agent.role, {}
        self._asking, self._state = asking, state
        self.usage: Mapping[str, int] = {}
        self._answer: LiteAgentOutput | None = None
        known = state.progress.get(id(agent)) if state is not None and state.restored else None
        same = known is not None and known.given == messages
        self.progress = known if known is not None and same else Progress(given=messages)
        if state is not None:
            state.progress[id(agent)] = self.progress
        self._about: dict[str, Any] = {
            "agent_id": str(agent.id),
            "agent_role": agent.role,
            "agent_info": {"role": agent.role},
        }

    def complete(self) -> LiteAgentOutput:
        """Return the answer: a restored one, or a new one."""
        if _KEY in self.progress.outputs:  # it was answered, and nothing else is asked
            return self._as_output(self.progress.outputs[_KEY].raw)
        self._begin()
        try:
            self.perform(Job("here", "main", _KEY, 1))
        except BaseException as error:
            reason = describe(error, self.agent)
            event_bus.emit(self.agent, events.LiteAgentExecutionErrorEvent(error=reason, **self._about))
            raise
        assert self._answer is not None
        return self._answer

    def steps(self, key: str) -> Steps:
        """Return the store for the steps of the conversation."""
        return Steps(self.progress.task(key).steps, self.nest, key)

    def answer(self, said: Conversation, journal: Journal) -> str:
        """Return the answer that passes the agent's guardrail. Raises `GuardrailFailed`."""
        agent = self.agent
        if not said.messages:
            said.say(*self._opening(journal))
        tools = [*agent.tools, *mcp.tools_for(agent.mcps, agent=agent, journal=journal)]
        state = loop.state_for(agent, said, journal, tools=tools, response_model=self._asking.response_format)
        self.usage = state.usage

        def check(text: str, failed: int) -> tuple[str, str | None]:  # noqa: ARG001 - the loop's name
            if agent.guardrail is None:
                return text, None
            passed, found = verdict_of(agent.guardrail, self._as_output(text, said.messages), agent, journal)
            if not passed:
                return text, str(found)
            return text if found is None or isinstance(found, LiteAgentOutput) else outputs.from_value(found)[0], None

        def object_to(why: str) -> None:
            said.say(conversation.object_to(why))

        whose = f"the answer of {agent.role!r}"
        return until_passed(partial(loop.work, state), check, agent.guardrail_max_retries, object_to, whose)

    def keep(self, raw: str, said: Conversation) -> None:
        """Store the answer and emit its event under the state's lock, so that a checkpoint has both or neither."""
        agent = self.agent
        self._answer = answer = self._as_output(raw, said.messages, self.usage)
        with self.lock:
            self.progress.outputs[_KEY] = TaskOutput(name=_KEY, raw=raw, agent=agent.role)
            event_bus.emit(
                agent, events.LiteAgentExecutionCompletedEvent(output=answer, usage=answer.usage_metrics, **self._about)
            )

    def origin(self) -> str:
        """Return the prefix of its tools' keys: the same on resuming, inside of a task or not."""
        outer = origin()
        return f"{outer}/{self.nest.name}" if outer and self.nest is not None else str(self.progress.kickoff_event_id)

    def _begin(self) -> None:
        agent, progress = self.agent, self.progress
        if is_open(self._state, progress.kickoff_event_id):
            push_event_scope(progress.kickoff_event_id or "", "lite_agent_execution_started")
            agent.kickoff_event_id = progress.kickoff_event_id
            return
        event = events.LiteAgentExecutionStartedEvent(messages=self._asking.messages, tools=agent.tools, **self._about)
        agent.kickoff_event_id = agent.checkpoint_kickoff_event_id = progress.kickoff_event_id = event.event_id
        event_bus.emit(agent, event)

    def _opening(self, journal: Journal) -> list[dict[str, Any]]:
        """Return the first messages of the conversation."""
        model, messages = self._asking.response_format, [dict(one) for one in self._asking.messages]
        if model is not None:
            messages[-1]["content"] = f"{messages[-1]['content']}\n\n{structured_output.wanted(model)}"
        return [conversation.introduce(self.agent, str, journal), *messages]

    def _as_output(
        self, raw: str, messages: Sequence[dict[str, Any]] = (), usage: Mapping[str, int] | None = None
    ) -> LiteAgentOutput:
        model = self._asking.response_format
        return LiteAgentOutput(
            raw=raw,
            pydantic=None if model is None else model.model_validate_json(raw),
            agent_role=self.agent.role,
            usage_metrics=dict(usage) if usage else None,
            messages=[dict(one) for one in messages],
        )


class AgentAttempt(LocalAttempt):
    """The attempt at an agent's answer, in the caller's thread."""

    enclosed = True

    def __init__(self, tasks: AgentTask, claim: Claim) -> None:
        super().__init__(tasks, claim, _ONCE)
        self.origin = tasks.origin()
        self.conversation = KeptConversation(tasks.progress.task(_KEY), tasks.lock)
        self._tasks = tasks

    def run(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``do`` in the caller's context, with this attempt's prefix of keys."""
        with originating(self.origin):
            return do(*args, **kwargs)

    def load(self, journal: Journal) -> Loaded:
        """Return the agent and its plan. Handlers receive its calls; a restored conversation continues."""
        journal.watched, journal.replay_from_start = True, False
        return Loaded(self._tasks, AGENT, AGENT.plan(self._tasks, self.claim.crew))

    def pacer(self) -> Pacer:
        """Return the rate limit of the agent's model calls."""
        return self._tasks.agent.pace

    def record(self, decision: Decision, replayed: Counters) -> None:
        """Store the answer in the state."""
        self._steps.end(replayed)
        if isinstance(decision, Commit):
            self._tasks.keep(outputs.from_record(json.loads(decision.output)).raw, self.conversation)
