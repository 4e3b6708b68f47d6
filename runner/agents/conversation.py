"""The messages that an agent's model gets: its role, its task, and what was wrong with its answer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from runner.agents import Agent
from runner.core.output import TaskOutput
from runner.journal.journal import Journal

Message = dict[str, Any]


def introduce(agent: Agent, fill: Callable[[str], str], journal: Journal) -> Message:
    """Return the system message with the agent's role, and the date on which the task began, also after a restart."""
    lines = [f"You are {fill(agent.role)}."]
    if agent.backstory:
        lines.append(fill(agent.backstory))
    if agent.goal:
        lines.append(f"Your goal: {fill(agent.goal)}")
    if agent.inject_date:
        began = journal.get_marker("date")
        if began is None:
            began = datetime.now(UTC).astimezone().isoformat()
            journal.set_marker("date", began)
        lines.append(f"Today is {datetime.fromisoformat(began).strftime(agent.date_format)}.")
    return {"role": "system", "content": "\n".join(lines)}


def brief(description: str, expected_output: str, context: Sequence[TaskOutput], form: str = "") -> Message:
    """Return the message with the task; ``form`` describes the expected form of the answer."""
    parts = [description]
    if expected_output:
        parts.append(f"The answer should be: {expected_output}")
    if context:
        parts.append("You may build on this:\n\n" + "\n\n---\n\n".join(output.raw for output in context))
    if form:
        parts.append(form)
    return {"role": "user", "content": "\n\n".join(parts)}


def object_to(why: str) -> Message:
    """Return the message about an answer that was rejected."""
    return {"role": "user", "content": f"That answer cannot be taken: {why}\n\nGive a better one."}


def respond(said: str) -> Message:
    """Return the message about an answer that a person rejected."""
    return {"role": "user", "content": f"A person read that answer and says: {said}\n\nAnswer again, as they want it."}


def as_messages(said: str | Sequence[Mapping[str, Any]]) -> list[Message]:
    """Convert a caller's prompt or conversation to messages."""
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return [dict(message) for message in said]
