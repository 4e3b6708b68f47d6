"""Guardrails: functions of the output, or rules in words that a model judges."""

from typing import Any

from pydantic import BaseModel, Field

from runner.agents import Agent, loop, structured_output
from runner.engine.work import Conversation
from runner.journal.journal import Journal

_JUDGE = "You check whether a text does what a rule says. Judge by this rule alone, and do not improve the text."


class Verdict(BaseModel):
    """What the model thinks of an output."""

    valid: bool = Field(description="whether the text does what the rule says")
    feedback: str = Field(default="", description="if it does not: what is wrong, in a sentence or two")


class LLMGuardrail:
    """A guardrail in words, judged by ``llm``: a model, or its name.

    It is called with an output, as a function would be. Inside a task, the model call is recorded like others.
    """

    def __init__(self, description: str, llm: Any) -> None:
        self.description = description
        self.llm = llm

    def __call__(self, output: Any) -> tuple[bool, Any]:
        """Return ``(True, output)``, or ``(False, why)``. Raises what the model raised."""
        judge = Agent(role="Judge", goal=_JUDGE, llm=self.llm)
        answer = judge.kickoff(_question(self.description, output.raw), response_format=Verdict)
        return _said(self.description, answer.pydantic, output)


def verdict_of(
    guardrail: Any, output: Any, agent: Agent | None, journal: Journal, *, task: Any = None
) -> tuple[Any, Any]:
    """Return whether an output passes a guardrail, and its replacement, or why it does not pass."""
    if isinstance(guardrail, str):
        assert agent is not None, "the plan refuses guardrails in words where no model can judge"
        return judge(guardrail, output.raw, agent, journal, task=task)
    found: tuple[Any, Any] = guardrail(output)
    return found


def judge(rule: str, text: str, agent: Agent, journal: Journal, *, task: Any = None) -> tuple[bool, str | None]:
    """Return whether the text satisfies the rule, and if not, why. Raises `TaskError` if the model gives no verdict."""
    asked = Conversation()
    asked.say(
        {"role": "system", "content": f"{_JUDGE}\n\n{structured_output.wanted(Verdict)}"},
        {"role": "user", "content": _question(rule, text)},
    )
    state = loop.state_for(agent, asked, journal, task=task, response_model=Verdict, reported=False)
    verdict = Verdict.model_validate_json(loop.work(state))
    return _said(rule, verdict, None)


def _question(rule: str, text: str) -> str:
    return f"The rule:\n{rule}\n\nThe text:\n{text}"


def _said(rule: str, verdict: Any, passed: Any) -> tuple[bool, Any]:
    return verdict.valid, passed if verdict.valid else verdict.feedback or f"it does not do this: {rule}"
