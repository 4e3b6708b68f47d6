"""Performs a native task around its ``run``: the agent's conversation, guardrails, the condition."""

from collections.abc import Callable, Sequence
from typing import Any

from runner.agents import Agent, conversation, delegation, loop, mcp, structured_output
from runner.agents.llm_guardrail import verdict_of
from runner.core import output as outputs
from runner.core.errors import ClaimLost, Interrupted
from runner.core.output import TaskOutput
from runner.core.redaction import redact
from runner.crews import planning
from runner.crews.context import ConditionalTask, Task, TaskContext
from runner.crews.crew import Crew
from runner.engine.attempt import until_passed
from runner.engine.work import Work
from runner.events import work_events as events
from runner.events.bus import event_bus
from runner.events.call_events import LLMGuardrailCompletedEvent, LLMGuardrailFailedEvent, LLMGuardrailStartedEvent
from runner.events.scope import event_stack
from runner.snapshots.resuming import resume_start


def is_wanted(task: ConditionalTask, work: Work, context: TaskContext) -> bool:
    """Whether the task's condition holds for the output before it."""
    earlier = work.plan.earlier(work.key)
    return task.should_execute(context.outputs[earlier[-1]] if earlier else TaskOutput())


class agent_at_work:
    """Emits the events of the agent that performs the task. A resumed agent continues under its first start.

    (A generator would take 300 bytes more of each agent that waits.)
    """

    __slots__ = ("_agent", "_context", "_crew", "_task", "_work")

    def __init__(self, crew: Crew, task: Task, context: TaskContext, work: Work) -> None:
        self._crew, self._task, self._context, self._work = crew, task, context, work
        self._agent = crew.doer(task) if task.run is None else None

    def __enter__(self) -> None:
        if (agent := self._agent) is None:
            return
        task = self._task
        if not (at_work_here(self._work) or resume_start("agent_execution_started", str(task.id))):
            about: dict[str, Any] = {"tools": tools_of(self._crew, task), "task_prompt": self._context.task.description}
            event_bus.emit(agent, events.AgentExecutionStartedEvent(agent=agent, task=task, **about))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if (agent := self._agent) is None:
            return
        about: dict[str, Any] = {"agent": agent, "task": self._task}
        if error is None:
            event_bus.emit(agent, events.AgentExecutionCompletedEvent(**about))
        elif not (self._work.is_resumable and isinstance(error, Interrupted | ClaimLost)):  # it resumes elsewhere
            event_bus.emit(agent, events.AgentExecutionErrorEvent(error=describe(error, agent), **about))


def at_work_here(work: Work) -> bool:
    """Whether the agent had started when the task was handed over to this worker."""
    return work.is_resumable and [kind for _, kind in event_stack()][-1:] == ["agent_execution_started"]


def ask(crew: Crew, task: Task, context: TaskContext, work: Work, fill: Callable[[str], str]) -> str:
    """Have the task's agent, or the crew's manager, perform the task from where its conversation stands."""
    agent, said = crew.doer(task), work.conversation
    assert agent is not None, "the plan refuses tasks with neither run nor agent"
    model = task.output_model()
    state = loop.state_for(
        agent,
        said,
        work.journal,
        tools=[*tools_of(crew, task, fill), *mcp.tools_for(agent.mcps, agent=agent, journal=work.journal)],
        task=task,
        response_model=model,
        role=fill(agent.role),
        callbacks=[crew.step_callback],
        failed=work.failed,
    )
    if not said.messages:
        filled = context.task
        form = structured_output.wanted(model) if model is not None else ""
        said.say(
            conversation.introduce(agent, fill, work.journal),
            conversation.brief(filled.description, filled.expected_output, context.context, form),
        )
        del filled
    if crew.planner is None:
        context.drop_copy()
    return loop.work(state)


def tools_of(crew: Crew, task: Task, fill: Callable[[str], str] = str) -> list[Any]:
    """Return the tools for the task: its own, else its agent's; and those for delegation, if there are coworkers."""
    agent = crew.doer(task)
    own = task.tools or (agent.tools if agent else [])
    coworkers = crew.coworkers(task)
    return [*own, *delegation.delegation_tools(coworkers, fill)] if coworkers else own


def planned(crew: Crew, task: Task, context: TaskContext) -> str:
    """Return the task's description with the part of the crew's plan that is about it."""
    filled = context.task.description
    number = next(i for i, one in enumerate(crew.tasks, 1) if one is task)
    plan = planning.plan_of(number, context.outputs[planning.KEY].to_dict())
    return f"{filled}\n\nThe plan for it:\n{plan}" if plan else filled


def checks_of(task: Task, doer: Agent | None) -> list[Any]:
    """Return the guardrails of a task: its agent's first."""
    if doer is not None and task.run is None and doer.guardrail is not None:
        return [doer.guardrail, *task.checks]
    return task.checks


def checked(
    task: Task, doer: Agent | None, context: TaskContext, work: Work, attempt: Callable[[], TaskOutput]
) -> TaskOutput:
    """Return the first output that passes all guardrails, up to the guardrail retry limit. Raises `GuardrailFailed`."""
    checks, most = checks_of(task, doer), task.guardrail_max_retries
    if doer is not None and len(checks) > len(task.checks):
        most = max(most, doer.guardrail_max_retries) if task.checks else doer.guardrail_max_retries
    most += work.failed * (most + 1)  # attempts before this one are replayed; each may ask as often

    def check(output: TaskOutput, failed: int) -> tuple[TaskOutput, str | None]:
        return _through_guardrails(checks, task, doer, output, failed, work)

    def object_to(why: str) -> None:
        context.feedback = why
        if work.conversation.messages:
            work.conversation.say(conversation.object_to(why))

    return until_passed(attempt, check, most, object_to, f"the output of task {work.key!r}")


def _through_guardrails(
    checks: Sequence[Any], task: Task, doer: Agent | None, output: TaskOutput, asked: int, work: Work
) -> tuple[TaskOutput, str | None]:
    """Return the output as the guardrails leave it, and the objection of the first one that fails, if any."""
    for guardrail in checks:
        about: dict[str, Any] = {"from_task": task, "from_agent": doer, "retry_count": asked}
        event_bus.emit(guardrail, LLMGuardrailStartedEvent(guardrail=guardrail, **about))
        try:
            passed, result = verdict_of(guardrail, output, doer, work.journal, task=task)
        except BaseException as error:
            event_bus.emit(guardrail, LLMGuardrailFailedEvent(error=type(error).__name__, **about))
            raise
        event_bus.emit(
            guardrail,
            LLMGuardrailCompletedEvent(success=bool(passed), result=result, error=None if passed else result, **about),
        )
        if not passed:
            return output, str(result)
        output = _replaced(task, output, result)
    return output, None


def _replaced(task: Task, output: TaskOutput, result: Any) -> TaskOutput:
    """Return the output that a guardrail returned in place of this one; None keeps this one."""
    if result is None or result is output:
        return output
    model = task.output_model()
    now = outputs.typed_output(output.name or "", result, task.names)
    replaced = output.model_copy(update={"raw": now.raw, "json_dict": now.json_dict, "pydantic": None})
    replaced._value_types = now._value_types if model is None else None
    raw, data = now.raw, now.json_dict
    if model is not None:
        replaced.pydantic = model.model_validate(data) if data is not None else model.model_validate_json(raw)
        replaced.json_dict = replaced.pydantic.model_dump(mode="json")
    return replaced


def describe(error: BaseException, *agents: Any) -> str:
    """Describe an error in one line, without the API keys of these agents' models, which services may repeat."""
    keys = [getattr(getattr(agent, "llm", None), "api_key", None) for agent in agents]
    text = redact(" ".join(str(error).split()), *(key for key in keys if isinstance(key, str)))
    return f"{type(error).__name__}: {text[:500]}"
