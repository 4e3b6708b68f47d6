"""Handles human feedback in CrewAI flows with CrewAI's own code, so a model gets the same requests as without the
runner.

Its calls are journaled like all others. The person's word itself is asked for by our flows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crewai.flow.flow_definition import FlowHumanFeedbackDefinition
from crewai.flow.human_feedback import (
    HumanFeedbackCollapseError,
    _distill_and_store_lessons,
    _pre_review_with_lessons,
    _resolve_llm_instance,
)

from runner.flows.feedback import choose


@dataclass(frozen=True)
class Labelling:
    """What tells which label an answer means. Its model is made when it is needed, as by CrewAI."""

    llm: Any

    def label(self, theirs: Any, answer: str, labels: Sequence[str], default: str | None) -> str:
        """The label. Where no model can be asked, or it says none of them, the answer's own words count.

        Raises `BadInput` where they say none either, so that the person is asked again, and what kept it from asking.
        """
        try:
            return str(
                theirs._collapse_to_outcome(feedback=answer, outcomes=labels, llm=_resolve_llm_instance(self.llm))
            )
        except (HumanFeedbackCollapseError, ImportError, ValueError) as error:
            was_asked = isinstance(error, HumanFeedbackCollapseError) and error.__cause__ is None
            if not was_asked and answer.strip().casefold() not in map(str.casefold, labels):
                raise
            return choose(answer, labels, default=default)


@dataclass(frozen=True)
class Lessons:
    """``learn=True``: what people said before is applied to an output before it is shown, and what they say is kept."""

    asked: FlowHumanFeedbackDefinition

    def review(self, theirs: Any, method: str, output: Any) -> Any:
        """The output as it is shown."""
        return output if theirs.memory is None else _pre_review_with_lessons(theirs, method, output, **self._how())

    def learn(self, theirs: Any, method: str, output: Any, answer: str) -> None:
        """Keep what an answer teaches in the flow's memory, before this returns."""
        if theirs.memory is not None:
            _distill_and_store_lessons(theirs, method, output, answer, **self._how())
            theirs._drain_memory_writes()

    def _how(self) -> dict[str, Any]:
        one = self.asked
        return {
            "llm": _resolve_llm_instance(one.llm),
            "learn_source": one.learn_source,
            "learn_strict": one.learn_strict,
        }
