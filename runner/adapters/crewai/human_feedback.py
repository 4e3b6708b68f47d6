"""Handles human feedback in CrewAI flows with CrewAI's own code, so a model gets the same requests as without us.

Its model calls are journaled like all others. The person is asked by our flows.
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
    """Finds out which label a person's answer means, with a model that is created when it is first needed."""

    llm: Any

    def label(self, theirs: Any, answer: str, labels: Sequence[str], default: str | None) -> str:
        """Return the label. If no model can be asked, or it names no label, the answer's own words decide.

        Raises `BadInput` if they decide nothing, so that the person is asked again, and otherwise the error of the
        model.
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
    """``learn=True``: earlier feedback is applied to an output before it is shown, and new feedback is stored."""

    asked: FlowHumanFeedbackDefinition

    def review(self, theirs: Any, method: str, output: Any) -> Any:
        """Return the output as it is shown to the person."""
        return output if theirs.memory is None else _pre_review_with_lessons(theirs, method, output, **self._how())

    def learn(self, theirs: Any, method: str, output: Any, answer: str) -> None:
        """Store what an answer teaches in the flow's memory, before this returns."""
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
