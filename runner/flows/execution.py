"""One execution of a method: its copy of the state, its argument, its journal, its result."""

import asyncio
import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from runner.core.annotations import signature_of
from runner.core.compatibility import TRIGGER_PAYLOAD
from runner.core.context_value import ContextValue
from runner.core.errors import BadInput, TaskError
from runner.core.plain_text import with_article
from runner.core.waiting import awaited, result_of
from runner.events import event_bus
from runner.events import flow_events as events
from runner.flows import state as states
from runner.flows.definition import Feedback, Method
from runner.flows.feedback import AnswerRefused, HumanFeedbackPending, HumanFeedbackResult, PendingFeedbackContext
from runner.flows.input_provider import InputResponse, flow_config, requested
from runner.flows.machine import Call
from runner.flows.values import Lost, decode, encode_gently
from runner.journal.human_answers import Answer
from runner.journal.journal import Journal
from runner.llm.llm import model_name
from runner.snapshots.resolve import inside

_BODY = "body"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a method: its output, its label if it has one, and a person's feedback."""

    output: Any
    signal: str | None = None
    feedback: HumanFeedbackResult | None = None


@dataclass(eq=False)
class Execution:
    """One execution of a method on a copy of the state. ``argument`` is the output that triggered it, if any."""

    flow: Any  #: a `Flow`, which imports this
    method: Method
    call: Call
    argument: Any = states.MISSING
    payload: Any = None
    began: int = 0  #: how many calls were done when it began
    awaited: Callable[[Any], Any] | None = None  #: awaits on the event loop that it is performed on, if on one
    journal: Journal = field(init=False)
    base: states.State = field(init=False)
    state: states.State = field(init=False)
    outer: "Execution | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.base = states.twin(self.flow.committed_state)
        self.state = states.twin(self.base)

    @property
    def function(self) -> Callable[..., Any]:
        """The bound method."""
        found: Callable[..., Any] = self.flow.function_of(self)
        return found

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def do(self) -> Outcome:
        """Run the method. Raises what it raises, and `InputRequired` to wait for a person."""
        with self._entered():
            known = self._body()
            value = self.function(*self.arguments()) if known is None else known[0]
            if known is None and inspect.isawaitable(value):
                value = asyncio.run(awaited(value)) if self.awaited is None else self.awaited(value)
            conclude = partial(self._conclude, value, is_kept=known is not None)
            if self.awaited is None or self.method.feedback is None:
                return conclude()
            return self.awaited(asyncio.to_thread(conclude))  # type: ignore[no-any-return]  # as `conclude`

    def ask(self, message: str, metadata: dict[str, Any] | None = None, *, pause: bool) -> str:
        """Return a person's answer; with ``pause``, never ask at the terminal."""
        who = self._who(message)

        def obtain(step: str) -> str | None:
            event_bus.emit(self.flow, events.FlowInputRequestedEvent(**who, metadata=metadata))
            said = None if pause or not self.flow.has_terminal else on_terminal(message)
            if said is None:
                self.flow.wait_for(self.question(step, message=message, metadata=metadata))
            return said

        answer = self.journal.answer(message, obtain)
        event_bus.emit(self.flow, events.FlowInputReceivedEvent(**who, response=answer, metadata=metadata))
        return answer

    def ask_provider(self, provider: Any, message: str, metadata: Any, timeout: float | None) -> InputResponse:
        """Return a provider's answer, recorded as a step: it is asked once, however often the method restarts."""
        who = self._who(message)

        def ask(message: str) -> dict[str, Any]:
            event_bus.emit(self.flow, events.FlowInputRequestedEvent(**who, metadata=metadata))
            self.flow.keep_state(self)
            return dataclasses.asdict(requested(provider, message, self.flow, metadata, timeout))

        found = InputResponse(**self.journal.step("ask", ask, (message,), {}))
        received = events.FlowInputReceivedEvent(
            **who, response=found.text, metadata=metadata, response_metadata=found.metadata
        )
        event_bus.emit(self.flow, received)
        return found

    def _who(self, message: str) -> dict[str, Any]:
        return {"flow_name": self.flow.flow_name, "method_name": self.method.name, "message": message}

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        self.outer = current.get()
        with ContextValue(current, self), inside(self.flow):
            yield

    def arguments(self) -> list[Any]:
        """The arguments of the method."""
        if self.method.start:
            takes = TRIGGER_PAYLOAD in signature_of(self.function).parameters
            return [self.payload] if takes and self.payload is not None else []
        if self.argument is states.MISSING or not self._takes_argument():
            return []
        if isinstance(self.argument, Lost):
            what = with_article(self.argument.kind)
            raise TaskError(
                f"method {self.method.name!r} needs the output of {self.call.by!r}, {what}, which no "
                "checkpoint can hold: return JSON or a pydantic model there"
            )
        return [self.argument]

    def _takes_argument(self) -> bool:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        kinds = (*positional, inspect.Parameter.VAR_POSITIONAL)
        return any(one.kind in kinds for one in signature_of(self.function).parameters.values())

    def _conclude(self, value: Any, *, is_kept: bool = False) -> Outcome:
        asked = self.method.feedback
        if asked is None:
            label = value.value if isinstance(value, Enum) else value
            return Outcome(value, str(label) if self.method.router and value is not None else None)
        if not is_kept:
            value = self.flow._review_output(self, value)
            self._keep_body(value)
        result = self._feedback(asked, value)
        return Outcome(value if asked.emit else result, result.outcome, result)

    # -- a person's word on the output

    def _keep_body(self, value: Any) -> None:
        """Record the method's output before asking about it, so that the method does not run again for the answer."""
        self.flow.bodies[self.call.key] = (value, self.base, self.state)
        patch = states.changes(states.fields(self.base), states.fields(self.state))
        before = states.dump(self.base, self.flow.leave_out)
        after = states.dump(self.state, self.flow.leave_out)
        kept = {
            **encode_gently(value),
            "before": {name: before[name] for name in (*patch.put, *patch.gone) if name in before},
            "after": {name: after[name] for name in patch.put if name in after},
            "gone": list(patch.gone),
        }
        self.journal.set_marker(_BODY, kept)

    def _body(self) -> tuple[Any] | None:
        """The recorded output of a method that only waits for feedback, and its changes of the state."""
        if self.method.feedback is None or (known := self.journal.get_marker(_BODY)) is None:
            return None
        live = self.flow.bodies.get(self.call.key)
        if live is not None:
            value, self.base, self.state = live
            return (value,)
        self.base = states.revised(self.base, known["before"])
        self.state = states.revised(self.state, known["after"], known["gone"])
        return (decode(known, self.function),)

    def _feedback(self, asked: Feedback, output: Any) -> HumanFeedbackResult:
        who: dict[str, Any] = {"flow_name": self.flow.flow_name, "method_name": self.method.name}
        labels = list(asked.emit)

        def obtain(step: str) -> str | None:
            context = self.question(step, output)
            event_bus.emit(
                self.flow,
                events.HumanFeedbackRequestedEvent(**who, output=output, message=asked.message, emit=labels or None),
            )
            provider = asked.provider or flow_config.hitl_provider
            return self._from_provider(provider, context) if provider else self._from_terminal(context)

        answer = self.journal.answer(asked.message, obtain)
        outcome = None
        if labels:
            # The model's reading of an answer is paid for once.
            try:
                outcome = str(self.journal.step("outcome", self._outcome, (answer,), {}))
            except BadInput as error:
                question = self.question(self.journal.step_of(asked.message), output)
                raise AnswerRefused(question, str(error)) from None
        answer = str(answer)
        self.flow._learn_from(self, output, answer)
        event_bus.emit(self.flow, events.HumanFeedbackReceivedEvent(**who, feedback=answer, outcome=outcome))
        return HumanFeedbackResult(output, answer, outcome, method_name=self.method.name, metadata=dict(asked.metadata))

    def _outcome(self, answer: str) -> str:
        asked = self.method.feedback
        assert asked is not None
        if isinstance(answer, Answer) and answer.label in asked.emit:
            return answer.label
        if not answer.strip():
            return asked.default_outcome or asked.emit[0]
        return str(self.flow._collapse_to_outcome(answer, list(asked.emit), asked.llm, asked.default_outcome))

    def _from_provider(self, provider: Any, context: PendingFeedbackContext) -> str | None:
        try:
            said = provider.request_feedback(context, self.flow)
            return str(result_of(said))
        except HumanFeedbackPending as pending:
            self.flow.wait_for(context, pending.callback_info or {})
            return None

    def _from_terminal(self, context: PendingFeedbackContext) -> str | None:
        said: str | None = self.flow._request_human_feedback(
            context.message, context.method_output, context.metadata, context.emit, context.method_name
        )
        if said is None:
            self.flow.wait_for(context)
        return said

    def question(
        self, step: str, output: Any = None, message: str = "", metadata: Any = None
    ) -> PendingFeedbackContext:
        """Return the question at a step of the journal: the method's own, or ``message``."""
        asked = None if message else self.method.feedback
        return PendingFeedbackContext(
            flow_id=states.state_id(self.state),
            flow_class=self.flow.flow_name,
            method_name=self.method.name,
            method_output=output,
            message=asked.message if asked else message,
            emit=list(asked.emit) or None if asked else None,
            default_outcome=asked.default_outcome if asked else None,
            metadata=dict((asked.metadata if asked else metadata) or {}),
            call=self.call.key,
            step=step,
            llm=model_name(asked.llm) if asked and asked.llm is not None else None,
        )


current: ContextVar[Execution | None] = ContextVar("runner_flow_execution", default=None)
"""The innermost execution around the code that runs."""


def within(flow: object) -> Execution | None:
    """Return the execution of this flow to which the calling code belongs."""
    found = current.get()
    while found is not None and found.flow is not flow:
        found = found.outer
    return found


def passed_on(said: HumanFeedbackResult | None, call: Call, output: Any) -> Any:
    """Return the argument of a call that ``output`` triggered, given the feedback ``said``."""
    if said is None or said.outcome is None:
        return output
    return said if call.signal else said.outcome


def on_terminal(message: str) -> str | None:
    """Ask at the terminal; None if there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    return input(f"{message}\n> ").strip()
