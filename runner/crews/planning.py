"""``Crew(planning=True)``: a model makes a plan for all tasks before the first one; it is paid for once.

Making it is a task like any other: it is committed, so each task finds it there, on whichever worker it is done.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from runner.agents import Agent
from runner.crews.context import Task

KEY = "planning"
"""What the task is called that makes the plan."""

_EXPECTED = "For each task, a plan in numbered steps, which names the tools to use and what to hand on."


class PlanPerTask(BaseModel):
    """The plan for one task."""

    task_number: int = Field(ge=1, description="the number of the task, the first one being 1")
    task: str = Field(default="", description="the task in a few words")
    plan: str = Field(description="how to do it, step by step")


class PlannerTaskPydanticOutput(BaseModel):
    """A plan for each task."""

    list_of_plans_per_task: list[PlanPerTask]


def planner_task(tasks: Sequence[Task], llm: Any) -> Task:
    """Return the task that plans the others."""
    planner = Agent(
        role="Task Execution Planner",
        goal="Plan the tasks of a crew, so that each agent knows what to do, in which order, and with which tools.",
        backstory="You know how good plans look: short, concrete, and in an order that works.",
        llm=llm,
    )
    return Task(
        name=KEY,
        description=described(tasks),
        expected_output=_EXPECTED,
        agent=planner,
        context=[],
        output_pydantic=PlannerTaskPydanticOutput,
    )


def described(tasks: Sequence[Task]) -> str:
    """Return the planner's prompt."""
    texts = "\n\n".join(_described(i, task) for i, task in enumerate(tasks, 1))
    return f"Plan how these tasks are to be done, one after the other:\n\n{texts}"


def plan_of(number: int, plan: Mapping[str, Any]) -> str:
    """Return the plan for the task with this number, the first one being 1; "" if there is none."""
    found = [one for one in plan.get("list_of_plans_per_task") or () if one.get("task_number") == number]
    return "\n\n".join(str(one["plan"]) for one in found)


def _described(number: int, task: Task) -> str:
    lines = [f"Task {number}: {task.description or task.name or ''}"]
    if task.expected_output:
        lines.append(f"It is to give: {task.expected_output}")
    if task.agent is not None:
        lines.append(f"It is done by: {task.agent.role}. Goal: {task.agent.goal}")
    tools = [_name(tool) for tool in task.tools or (task.agent.tools if task.agent else ())]
    if tools:
        lines.append(f"Tools: {', '.join(tools)}")
    return "\n".join(lines)


def _name(tool: Any) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__)
