"""The log of a flow for its checkpoints, later methods and callers, until the flow restarts."""

import threading
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from runner.flows import state as states
from runner.flows.feedback import HumanFeedbackPending, HumanFeedbackResult, PendingFeedbackContext
from runner.flows.machine import Call, Machine

if TYPE_CHECKING:
    from runner.flows.execution import Execution, Outcome


class FlowLog:
    """The finished methods and their results, the open questions and the methods at work."""

    last_human_feedback: HumanFeedbackResult | None
    _completed_methods: set[str]
    _state: Any

    @property
    def method_outputs(self) -> list[Any]:
        """The outputs of the methods, in the order in which they finished."""
        return [_output_of(entry) for entry in self._method_outputs]

    @property
    def completed_methods(self) -> set[str]:
        """The names of the methods that finished at least once.

        If they are set before a kickoff, it skips them: a saved state (``@persist``) may have their effects. Their
        listeners get None as their output.
        """
        return set(self._completed_methods)

    @completed_methods.setter
    def completed_methods(self, names: Set[str]) -> None:
        self._reset()
        self._completed_methods = set(names)

    @property
    def pending_feedback(self) -> PendingFeedbackContext | None:
        """The question that the flow waits for, if it does; of several, the oldest."""
        return next((pending.context for pending in self._asked.values()), None)

    _pending_feedback_context = pending_feedback

    @property
    def _input_history(self) -> list[dict[str, Any]]:  # as tests of others call it
        return self.input_history

    def log(self, call: Call, outcome: "Outcome") -> None:
        """A method is done: keep its result, and drop what was only needed until then."""
        entry: dict[str, Any] = {"method": call.method, "output": outcome.output, "key": call.key}
        if outcome.signal is not None:
            entry["signal"] = outcome.signal
        if outcome.feedback is not None:
            entry["feedback"] = self.last_human_feedback = outcome.feedback
            self.human_feedback_history.append(outcome.feedback)
        self._method_outputs.append(entry)
        self._entries[call.key] = entry
        self._completed_methods.add(call.method)
        self._method_execution_counts[call.method] = self._method_execution_counts.get(call.method, 0) + 1
        self._steps.pop(call.key, None)
        self.bodies.pop(call.key, None)

    def entry_of(self, key: str) -> dict[str, Any] | None:
        """Return the entry of a finished call."""
        return self._entries.get(key)

    def wait_for(self, context: PendingFeedbackContext, callback_info: Mapping[str, Any] | None = None) -> None:
        """A method asks a question."""
        pending = HumanFeedbackPending(context, dict(callback_info or {}))
        pending.provided = callback_info is not None
        with self._lock:
            self._asked[context.call] = pending

    def _reset(self) -> None:
        """Clear the log. The state stays."""
        if "_lock" not in self.__dict__:
            self._lock = threading.RLock()
            self._left_out: set[str] = set()
            self._running = False
            self.has_terminal = True
            self.inputs: dict[str, Any] = {}
            self.given: Any = {}
            self.input_files: dict[str, Any] = {}
        self._machine: Machine | None = None
        self._method_outputs: list[Any] = []
        self._entries: dict[str, dict[str, Any]] = {}
        self._completed_methods = set()
        self._method_execution_counts: dict[str, int] = {}
        self._at_work: dict[str, Execution] = {}
        self._steps: dict[str, dict[str, str]] = {}
        self._asked: dict[str, HumanFeedbackPending] = {}
        self.bodies: dict[str, tuple[Any, states.State, states.State]] = {}
        self._finished_events: dict[str, str] = {}
        self.kickoff_event_id: str | None = None  #: of the event with which this kickoff began
        self._is_restored = False
        self.input_history: list[dict[str, Any]] = []  #: what `ask` asked in this process, and what was answered
        self.last_human_feedback = None
        self.human_feedback_history: list[HumanFeedbackResult] = []


def _output_of(entry: Any) -> Any:
    return entry["output"] if isinstance(entry, dict) and "output" in entry and "method" in entry else entry
