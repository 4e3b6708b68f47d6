"""``usage_metrics``: stores what CrewAI counts in each job with its output, and adds it up at the end."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from crewai import BaseLLM, Crew
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.types.usage_metrics import UsageMetrics

from runner.adapters.crewai.crew_plan import AFTER
from runner.engine.work import Work


def of(crew: Crew, work: Work) -> dict[str, int]:
    """Return the token counts that CrewAI has of this task, without zeros."""
    found = crew.usage_metrics if work.key != AFTER else None
    return {name: many for name, many in found.model_dump().items() if many} if found is not None else {}


def of_all(work: Work, keys: Sequence[str]) -> UsageMetrics:
    """Return the sum of the token counts of these finished tasks."""
    total = UsageMetrics()
    for found in work.stored_with(keys).values():
        total.add_usage_metrics(UsageMetrics.model_validate(found.get("usage") or {}))
    return total


def sum_up(crew: Crew, work: Work) -> None:
    """Make the crew's own token count the sum of all its tasks, whichever process performed them."""
    total = of_all(work, work.plan.earlier(work.key))

    def calculate() -> Any:
        crew.usage_metrics = total
        return total

    object.__setattr__(crew, "calculate_usage_metrics", calculate)


class Spent:
    """The tokens that one delegation to coworkers used, to be counted again when it is replayed.

    Models count for all their users: concurrent delegations cannot be told apart; a nested one is part of its outer.
    """

    def __init__(self, tool: Any, outer: "Spent | None") -> None:
        self.outer, self.beside = outer, False
        self._models = _models(tool)
        self._before = [_count(model) for model in self._models]

    def noted(self) -> dict[str, Any]:
        """Return what is recorded with the delegation's result."""
        found = [
            {name: many - before.get(name, 0) for name, many in _count(model).items() if many != before.get(name, 0)}
            for model, before in zip(self._models, self._before, strict=True)
        ]
        return {"spent": found} if any(found) and not self.beside else {}

    def replayed(self, noted: Mapping[str, Any]) -> None:
        """Add the recorded tokens of a replayed delegation to the models' counts."""
        for model, spent in zip(self._models, noted.get("spent", ()), strict=False):
            for name, many in spent.items():
                model._token_usage[name] = model._token_usage.get(name, 0) + many


class Spending:
    """The tool uses in progress, nested or side by side."""

    def __init__(self) -> None:
        self._open: list[Spent] = []
        self._current: ContextVar[Spent | None] = ContextVar("runner_spent", default=None)

    @contextlib.contextmanager
    def by(self, tool: Any) -> Iterator[Spent]:
        """Count the tokens of one tool use while this is open."""
        one = Spent(tool, self._current.get())
        around: list[Spent] = []
        while (outer := (around[-1] if around else one).outer) is not None:
            around.append(outer)
        for other in self._open:
            if other not in around:
                other.beside = one.beside = True
        self._open.append(one)
        token = self._current.set(one)
        try:
            yield one
        finally:
            self._current.reset(token)
            self._open.remove(one)


def _models(tool: Any) -> list[BaseLLM]:
    agents = tool.agents if isinstance(tool, BaseAgentTool) else ()
    found = [agent.llm for agent in agents if isinstance(getattr(agent, "llm", None), BaseLLM)]
    return list({id(one): one for one in found}.values())


def _count(model: BaseLLM) -> dict[str, int]:
    return dict(model._token_usage)
