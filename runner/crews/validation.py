"""Validates a native crew, before anything is stored."""

from runner.agents import Agent
from runner.agents.tools import as_tools
from runner.core.errors import BadCrew
from runner.crews import native_task
from runner.crews.context import ConditionalTask, Task
from runner.crews.crew import Crew, Process
from runner.llm.llm import model_for


def refuse_staff(crew: Crew) -> None:
    """Raise `BadCrew` for a manager or a planner that cannot be."""
    if crew.is_data:
        return
    manager = crew.manager
    if crew.process is Process.hierarchical:
        if manager is None:
            raise BadCrew("Process.hierarchical needs a manager: give the crew manager_llm=... or manager_agent=...")
        if any(agent is manager for agent in crew.everyone):
            raise BadCrew(
                f"the manager {manager.role!r} is one of the crew's agents too: leave it out of agents and tasks"
            )
        if manager.tools:
            raise BadCrew(f"the manager {manager.role!r} has tools: a manager delegates, so give them to its agents")
        _refuse_model(manager, f"the manager {manager.role!r}")
    if crew.planner is not None and crew.planner.agent is not None:
        _refuse_model(crew.planner.agent, "the crew's planner", "planning_llm=")


def refuse_task(crew: Crew, task: Task, key: str, after: tuple[str, ...]) -> None:
    """Raise `BadCrew` for a task that nothing can perform."""
    if crew.is_data and task.output is not None:
        return  # it needs no code any more
    if crew.is_data and task.run is None:
        raise BadCrew(
            f"task {key!r} needs its code, which is not in the checkpoint: create the crew first, "
            "and then restore it, or use crew.kickoff(from_checkpoint=...)"
        )
    doer = crew.doer(task)
    if task.run is None and doer is None:
        raise BadCrew(f"task {key!r} has neither run= nor agent=: give it one of them")
    if doer is not None and (task.run is None or any(isinstance(check, str) for check in task.checks)):
        _refuse_model(doer, f"the agent {doer.role!r} of task {key!r}")
    if task.run is None:
        _refuse_tools(crew, task, key)
    for check in task.checks:
        if not callable(check) and not (isinstance(check, str) and doer is not None):
            raise BadCrew(
                f"the guardrail of task {key!r} must be a function of the output that returns (True, output) or "
                "(False, why), or a rule in words, with an agent whose model can judge by it"
            )
    if isinstance(task, ConditionalTask) and not after:
        raise BadCrew(
            f"the conditional task {key!r} has no earlier task whose output its condition could check: "
            "name one in its context"
        )
    if isinstance(task, ConditionalTask) and task.condition is None:
        raise BadCrew(f"the conditional task {key!r} has no condition=")


def _refuse_tools(crew: Crew, task: Task, key: str) -> None:
    coworkers = crew.coworkers(task)
    if crew.manager is not None and not coworkers:
        raise BadCrew(f"task {key!r} has no agent to which the manager could delegate it: give it or the crew agents")
    for coworker in coworkers:
        _refuse_model(coworker, f"the agent {coworker.role!r}, to which work may be delegated,")
    try:
        as_tools(native_task.tools_of(crew, task))
        for coworker in coworkers:
            as_tools(coworker.tools)
    except BadCrew as error:
        raise BadCrew(f"task {key!r}: {error}") from None


def _refuse_model(agent: Agent, who: str, how: str = "llm=") -> None:
    """Raise `BadCrew` if an agent has no model that can be called."""
    if model_for(agent.llm) is None:
        what = "has no model" if agent.llm is None else f"has {agent.llm!r:.60} for a model, which cannot be called"
        raise BadCrew(
            f'{who} {what}: give it {how}"openai/gpt-4o-mini", an LLM(...) or a '
            f"subclass of runner.BaseLLM{', or set OPENAI_MODEL_NAME' if agent.llm is None else ''}"
        )
