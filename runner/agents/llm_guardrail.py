"""Guardrails in words: the agent's own model judges the output by them."""

from typing import Any

from pydantic import BaseModel, Field

from runner.agents import Agent, loop, structure
from runner.engine.work import Conversation
from runner.journal.journal import Journal


class Verdict(BaseModel):
    """What the model thinks of an output."""

    valid: bool = Field(description="whether the text does what the rule says")
    feedback: str = Field(default="", description="if it does not: what is wrong, in a sentence or two")


def judge(rule: str, text: str, agent: Agent, journal: Journal, *, task: Any = None) -> tuple[bool, str | None]:
    """Whether the text passes, and if not, why. Raises `TaskError` where the model gives no verdict."""
    asked = Conversation()
    asked.say(
        {
            "role": "system",
            "content": "You check whether a text does what a rule says. Judge by this rule alone, and do not improve "
            f"the text.\n\n{structure.wanted(Verdict)}",
        },
        {"role": "user", "content": f"The rule:\n{rule}\n\nThe text:\n{text}"},
    )
    job = loop.job_for(agent, asked, journal, task=task, response_model=Verdict, told=False)
    verdict = Verdict.model_validate_json(loop.work(job))
    return verdict.valid, None if verdict.valid else verdict.feedback or f"it does not do this: {rule}"
