"""Delivers the start and the end of a kickoff to handlers in the crew's own code, each once.

Each task is a kickoff of CrewAI's, and CrewAI's own handlers get all of its events. Others get the start with the
branch's first task, and the end, with the crew's output, with its last. The task's journal says which they have had, so
a task that restarts does not repeat them.
"""

from collections.abc import Mapping
from typing import Any

from crewai import Crew, Task
from crewai.events import CrewKickoffCompletedEvent, CrewKickoffFailedEvent, CrewKickoffStartedEvent
from crewai.tasks.conditional_task import ConditionalTask

from runner.adapters.crewai import crew_plan, usage
from runner.adapters.crewai.crew_plan import AFTER, BEFORE, SKIPPED
from runner.adapters.crewai.event_routing import EventRouting, Recipients
from runner.adapters.crewai.values import PriorOutputs
from runner.engine.work import Work

STARTED, COMPLETED, FAILED = "crew_kickoff_started", "crew_kickoff_completed", "crew_kickoff_failed"


class KickoffEventFilter(EventRouting):
    """Reports, while `open`, the kickoffs that perform this crew's tasks as one. Other crews' events pass unchanged."""

    def __init__(self, crew: Crew, work: Work) -> None:
        super().__init__(work)
        self._crew = crew
        self._tasks: dict[str, Task] = crew_plan.by_key(crew)
        self._over = False
        self._failed = False

    def no_more(self) -> None:
        """Report no end of this kickoff from here on: the runner ended it, not the crew."""
        self._over = True

    def failed(self, error: Exception) -> None:
        """Report that the crew failed, unless CrewAI's kickoff has reported it or the task is being stopped."""
        if not self._failed and self._work.journal.cancel_scope.stopping is None:
            self.emit(self._crew, CrewKickoffFailedEvent(crew_name=self._crew.name, error=str(error)))

    def skipped(self, inputs: Mapping[str, Any] | None) -> None:
        """A condition skipped the task: nothing is kicked off. If it is the last, report the start and the end."""
        if not self._is_last():
            return
        given = None if inputs is None else dict(inputs)
        self._tell_code(CrewKickoffStartedEvent(crew_name=self._crew.name, inputs=given))
        completed = CrewKickoffCompletedEvent(crew_name=self._crew.name, output=None)
        self._make_whole(completed)
        self._tell_code(completed)

    def _tell_code(self, event: Any) -> None:
        self.route(self._crew, event, Recipients.CODE if self._is_reported(event.type) else Recipients.NONE, event.type)

    def emit(self, source: Any, event: Any) -> Any:
        """Emit an event; of this crew's kickoff, the code's handlers receive one start and one end."""
        if source is not self._crew or event.type not in (STARTED, COMPLETED, FAILED):
            return super().emit(source, event)
        self._failed |= event.type == FAILED
        is_reported = self._is_reported(event.type)
        if is_reported and event.type == COMPLETED:
            self._make_whole(event)
        mark = event.type if event.type != FAILED else ""
        return self.route(source, event, Recipients.ALL if is_reported else Recipients.CREWAI, mark)

    def _is_reported(self, kind: str) -> bool:
        if kind == FAILED:
            return not self._over
        here = self._is_first() if kind == STARTED else self._is_last()
        return here and not self.was_received(kind)

    def _own(self) -> list[str]:
        """The keys of the tasks that kick the crew off on this branch, in the plan's order."""
        return [task.key for task in (self._work.part or self._work.plan).tasks if task.key != BEFORE]

    def _is_first(self) -> bool:
        own = self._own()
        before = own[: own.index(self._work.key)]
        if not all(isinstance(self._tasks.get(key), ConditionalTask) for key in before):
            return False
        records = self._work.stored_with(before) if before else {}
        return all(records.get(key, {}).get(SKIPPED) for key in before)

    def _is_last(self) -> bool:
        return self._own()[-1] == self._work.key

    def _make_whole(self, event: Any) -> None:
        """Give the event the crew's output and token counts, including those of tasks performed elsewhere."""
        key = self._work.key
        if key == AFTER:  # it knows
            return
        names = list(self._tasks)
        at = names.index(key)
        later = names[at + 1 :]  # a fork keeps them
        kept = PriorOutputs(self._crew, self._tasks, self._work, None)
        kept.over = True
        known = [*names[:at], *later] if event.output is None else later
        outputs = (kept.tasks([name])[0].output for name in reversed(known))
        event.output = next((output for output in outputs if output is not None and output.raw), event.output)
        total = usage.of_all(self._work, [*self._work.plan.earlier(key), *later])
        if self._crew.token_usage is not None:
            total.add_usage_metrics(self._crew.token_usage)
        self._crew.token_usage = total
        event.total_tokens = total.total_tokens
