"""What guardrails say: functions of the output, or words by which the agent's own model judges it."""

from typing import Any

from pydantic import BaseModel, Field

from runner.agents import Agent, loop, structure
from runner.engine.work import Conversation
from runner.journal.journal import Journal


class Verdict(BaseModel):
    """What the model thinks of an output."""

    valid: bool = Field(description="whether the text does what the rule says")
    feedback: str = Field(default="", description="if it does not: what is wrong, in a sentence or two")


def verdict_of(
    guardrail: Any, output: Any, agent: Agent | None, journal: Journal, *, task: Any = None
) -> tuple[Any, Any]:
    """Whether an output passes a guardrail; and what it is to be instead, or why it does not pass."""
    if isinstance(guardrail, str):
        assert agent is not None, "the plan refuses guardrails in words where no model can judge"
        return judge(guardrail, output.raw, agent, journal, task=task)
    found: tuple[Any, Any] = guardrail(output)
    return found


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
    job = loop.job_for(agent, asked, journal, task=task, response_model=Verdict, reported=False)
    verdict = Verdict.model_validate_json(loop.work(job))
    return verdict.valid, None if verdict.valid else verdict.feedback or f"it does not do this: {rule}"
