"""``usage_metrics``: what CrewAI counts in each job is stored beside its output, and summed at the end."""

from collections.abc import Sequence
from typing import Any

from crewai import Crew
from crewai.types.usage_metrics import UsageMetrics

from runner.adapters.crewai.planned import AFTER
from runner.work import Work


def of(crew: Crew, work: Work) -> dict[str, int]:
    """What CrewAI counted of this task; what is 0 is left out."""
    found = crew.usage_metrics if work.key != AFTER else None
    return {name: many for name, many in found.model_dump().items() if many} if found is not None else {}


def of_all(work: Work, keys: Sequence[str]) -> UsageMetrics:
    """What CrewAI counted of these tasks, which are done."""
    total = UsageMetrics()
    for found in work.beside(keys).values():
        total.add_usage_metrics(UsageMetrics.model_validate(found.get("usage") or {}))
    return total


def sum_up(crew: Crew, work: Work) -> None:
    """The crew's own count is that of all its tasks, in this process or others."""
    total = of_all(work, work.plan.earlier(work.key))

    def calculate() -> Any:
        crew.usage_metrics = total
        return total

    object.__setattr__(crew, "calculate_usage_metrics", calculate)
