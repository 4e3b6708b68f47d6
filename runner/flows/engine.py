"""``flow.kickoff()``: the machine's calls, performed in this process.

One coroutine decides and commits; coroutine methods run on its loop, all others in threads. A commit changes state, log
and machine together, under the lock that a checkpoint is taken under, so every checkpoint shows whole methods only.
"""

import asyncio
import contextlib
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic_core import to_jsonable_python

from runner.core.compatibility import TRIGGER_PAYLOAD
from runner.core.errors import BadFlow, Conflict, FlowLoop, InputRequired, one_line
from runner.engine import local
from runner.events import (
    BaseEvent,
    FlowFailedEvent,
    FlowFinishedEvent,
    FlowPausedEvent,
    FlowStartedEvent,
    FlowStateConflictEvent,
    MethodExecutionFailedEvent,
    MethodExecutionFinishedEvent,
    MethodExecutionPausedEvent,
    MethodExecutionStartedEvent,
    event_bus,
    push_event_scope,
    triggered_by_scope,
)
from runner.flows import conflicts, pending, persistence
from runner.flows import state as states
from runner.flows.execution import Execution, Outcome
from runner.flows.feedback import AnswerRefused
from runner.flows.flow import Flow
from runner.flows.machine import Call, Machine
from runner.flows.pending import from_pending as from_pending
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.cancellation.timing import timed
from runner.journal.enclosing import code_here
from runner.journal.journal import Journal
from runner.snapshots import Progress, RuntimeState, running, settings_of, watching

logger = logging.getLogger(__name__)

MAX_THREADS = 64
"""How many methods of one flow may be at work side by side, coroutine functions not counted."""


async def kickoff(flow: Flow[Any], inputs: Mapping[str, Any] | None, state_id: str | None = None) -> Any:
    """Run a flow from its entry points; a restored one from where it was."""
    definition = flow.flow_definition()
    if flow.stored:
        raise BadFlow(
            f"flow {flow.stored.get('flow_name') or 'Flow'} of the checkpoint needs its code: "
            "import its class, or call from_checkpoint on it"
        )
    if not definition.starts:
        raise BadFlow(f"flow {flow.flow_name} has no method with @start(): it has nothing to start with")
    given = to_jsonable_python(dict(inputs or {}), fallback=str)
    async with _heard():
        with _alone(flow), running(flow, given) as state, watching(settings_of(flow), state):
            before = flow.given if flow._is_restored else {}
            known: set[str] = set()
            if not flow._is_restored:
                known = flow.completed_methods if flow._machine is None else known
                flow._reset()
                persistence.take_up(flow, inputs or {}, state_id)
            # A program that is started again gives the same inputs again: the state has come from them already.
            fresh = {name for name in given if before.get(name, states.MISSING) != given[name]}
            new = {name: value for name, value in (inputs or {}).items() if name in fresh}
            if new:
                states.give(flow.committed_state, new)
            if flow._machine is None:
                flow._machine = Machine(definition, flow.max_method_calls)
                flow._machine.begin()
                for call in flow._machine.pass_over(known):
                    flow.log(call, Outcome(None))
            flow.inputs = {**(flow.inputs if flow._is_restored else {}), **(inputs or {})}
            flow.given = given
            return await _Run(flow).go(list(flow._machine.pending.values()), state)


async def resume(flow: Flow[Any], answer: str, method: str | None) -> Any:
    """Answer a question that a flow waits for, and resume."""
    waiting = [pending.context for pending in flow._asked.values() if method in (None, pending.context.method_name)]
    if not waiting or flow._machine is None:
        whose = f" of method {method!r}" if method else ""
        raise Conflict(f"flow {flow.flow_name} is not awaiting an answer{whose}: nothing was asked, or it was answered")
    async with _heard():
        with _alone(flow), running(flow, flow.given) as state, watching(settings_of(flow), state):
            question = waiting[0]
            steps = flow._steps.setdefault(question.call, {})
            steps[question.step] = json.dumps(answer)
            del flow._asked[question.call]
            try:
                result = await _Run(flow).go(list(flow._machine.pending.values()), state)
                if not flow._asked:
                    pending.forget(flow)
                return result
            except AnswerRefused:
                # The answer was none: it is forgotten, and the question stands.
                steps.pop(question.step, None)
                flow.wait_for(question)
                raise


@contextlib.asynccontextmanager
async def _heard() -> AsyncIterator[None]:
    """When this is over, however it ended, every handler has received the events of it."""
    try:
        yield
    finally:
        await asyncio.to_thread(event_bus.flush)


class _Run:
    """One kickoff."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.flow = flow
        self.machine = flow._machine or Machine(flow.flow_definition(), flow.max_method_calls)
        self._pool: ThreadPoolExecutor | None = None
        self._open_starts: dict[str, list[str]] = {}
        self._changed: list[conflicts.Changed] = []

    async def go(self, calls: list[Call], state: RuntimeState | None) -> Any:
        """Perform the calls and all that they trigger."""
        flow = self.flow
        if state is not None:
            with state.lock:
                state.progress[id(flow)] = Progress(given=flow.given)
        self._open_scope(state)
        try:
            ready = [call for call in calls if call.key not in flow._asked]
            await local.aperform(lambda call: asyncio.create_task(self._perform(call), name=call.key), ready)
        except BaseException as error:
            reason = f"{type(error).__name__}: {one_line(error)}"
            self._emit(FlowFailedEvent(flow_name=flow.flow_name, error=reason))
            raise
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
        if flow._asked:
            asked = next(iter(flow._asked.values()))
            pending.keep(flow, asked)
            self._emit(
                FlowPausedEvent(
                    flow_name=flow.flow_name,
                    flow_id=flow.flow_id,
                    method_name=asked.context.method_name,
                    message=asked.context.message,
                    emit=asked.context.emit,
                    state=_seen(flow.committed_state),
                )
            )
            return asked
        result = flow.method_outputs[-1] if flow._method_outputs else None
        self._emit(FlowFinishedEvent(flow_name=flow.flow_name, result=result, state=_seen(flow.committed_state)))
        return result

    async def _perform(self, call: Call) -> list[Call]:
        """One call, from its started event to the calls that it triggers."""
        flow, method = self.flow, self.flow.flow_definition().methods[call.method]
        caused_by = flow._finished_events.get(call.by)
        with triggered_by_scope(caused_by) if caused_by else contextlib.nullcontext():
            first = self._execution(call)
            self._begin(first)

            async def attempt(failures: int) -> tuple[Execution, Outcome]:
                execution = self._execution(call) if failures else first
                with self._at_work(execution):
                    return execution, await self._attempt(execution)

            try:
                done = await local.auntil_done(attempt, (method.max_retries, method.retry_delay), asyncio.sleep)
            except InputRequired:
                self._paused(call)
                return []
            except Exception as error:
                self._emit_of(MethodExecutionFailedEvent, call, error=error)
                raise
            triggered = self._commit(*done)
            persistence.keep(flow, call.method)
            return triggered

    async def _attempt(self, execution: Execution) -> Outcome:
        if execution.is_async:
            with timed(execution.cancel_scope, execution.method.timeout, coroutine=True):
                return await execution.ado()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="method")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, _do, execution)

    def _execution(self, call: Call) -> Execution:
        flow = self.flow
        cancel_scope, steps = CancelScope(), flow._steps.setdefault(call.key, {})
        return Execution(
            flow,
            flow.flow_definition().methods[call.method],
            call,
            Journal(steps, local.Steps(steps), cancel_scope, watched=True, code=code_here()),
            self._argument(call),
            self.flow.inputs.get(TRIGGER_PAYLOAD),
            cancel_scope,
            began=len(self._changed),
        )

    def _argument(self, call: Call) -> Any:
        entry = self.flow.entry_of(call.by) if call.by else None
        if entry is None:
            return states.MISSING
        one_line = entry.get("feedback")
        if one_line is not None and one_line.outcome is not None:
            return one_line if call.signal else one_line.outcome
        return entry["output"]

    @contextlib.contextmanager
    def _at_work(self, execution: Execution) -> Iterator[None]:
        with self.flow._lock:
            self.flow._at_work[execution.call.key] = execution
        try:
            yield
        finally:
            with self.flow._lock:
                self.flow._at_work.pop(execution.call.key, None)

    # -- what is kept, and told

    def _commit(self, execution: Execution, outcome: Outcome) -> list[Call]:
        """State, log and machine move on together, and with them what a checkpoint at the finished event shows."""
        flow, call = self.flow, execution.call
        with self._no_checkpoint_in_between():
            patch, paths = states.merge(
                states.fields(execution.base), states.fields(flow.committed_state), states.fields(execution.state)
            )
            states.put(flow.committed_state, patch)
            since = self._changed[execution.began :]
            self._changed.append((call.method, (*patch.put, *patch.gone)))
            flow.log(call, outcome)
            loop: FlowLoop | None = None
            try:
                triggered = self.machine.finish(call.key, outcome.signal)
            except FlowLoop as error:
                triggered, loop = [], error
            if paths:
                text = conflicts.format_conflict(paths, call.method, since)
                logger.warning("%s: %s", flow.name or type(flow).__name__, text)
                others = dict.fromkeys(one for path in paths for one in conflicts.others(path, since))
                self._emit_of(FlowStateConflictEvent, call, fields=paths, others=list(others), text=text)
            event = self._emit_of(
                MethodExecutionFinishedEvent, call, result=outcome.output, state=_seen(flow.committed_state)
            )
            flow._finished_events[call.key] = event.event_id
        if loop is not None:
            raise loop
        return triggered

    def _begin(self, execution: Execution) -> None:
        """A method starts: afresh, or in the scope that it opened in the process that was lost."""
        call = execution.call
        opened = self._open_starts.get(call.method)
        if opened:
            push_event_scope(opened.pop(), "method_execution_started")
            return
        params = {f"_{i}": argument for i, argument in enumerate(execution.arguments())}
        self._emit_of(MethodExecutionStartedEvent, call, params=params, state=_seen(execution.base))

    def _paused(self, call: Call) -> None:
        context = self.flow._asked[call.key].context
        self._emit_of(
            MethodExecutionPausedEvent,
            call,
            flow_id=context.flow_id,
            message=context.message,
            emit=context.emit,
            state=_seen(self.flow.committed_state),
        )

    def _open_scope(self, state: RuntimeState | None) -> None:
        """The flow begins; a restored one is told what it did, and continues in the scopes that it left open."""
        flow = self.flow
        if flow._is_restored and state is not None:
            flow._is_restored = False
            opened = self._retell(state.event_record)
            if opened is not None:
                push_event_scope(opened, "flow_started")
                flow.kickoff_event_id = opened
                return
        flow._is_restored = False
        event = FlowStartedEvent(flow_name=flow.flow_name, inputs=flow.inputs or None)
        event_bus.emit(flow, event)
        flow.kickoff_event_id = event.event_id

    def _retell(self, record: Any) -> str | None:
        """Tell handlers of the methods' recorded events again. Returns the flow's start, if that was left open."""
        flow = self.flow
        mine = [node for node in record.all_nodes() if getattr(node.event, "flow_name", None) == flow.flow_name]
        opened: str | None = None
        for node in sorted(mine, key=lambda node: node.event.emission_sequence or 0):
            event, is_open = node.event, not node.neighbors("completed_by")
            if event.type == "flow_started" and is_open:
                opened = event.event_id
            if event.type == "method_execution_started" and is_open:
                self._open_starts.setdefault(event.method_name, []).insert(0, event.event_id)
            if event.type in ("method_execution_started", "method_execution_finished"):
                event_bus.replay(flow, event)
        return opened

    def _emit_of(self, kind: type[BaseEvent], call: Call, **about: Any) -> BaseEvent:
        event = kind(flow_name=self.flow.flow_name, method_name=call.method, **about)  # type: ignore[call-arg]
        return self._emit(event)

    def _emit(self, event: BaseEvent) -> BaseEvent:
        if not self.flow.suppress_flow_events:
            event_bus.emit(self.flow, event)
        return event

    @contextlib.contextmanager
    def _no_checkpoint_in_between(self) -> Iterator[None]:
        state = event_bus.runtime_state
        with state.lock if state is not None else contextlib.nullcontext(), self.flow._lock:
            yield


@contextlib.contextmanager
def _alone(flow: Flow[Any]) -> Iterator[None]:
    """A flow object has one state: it runs one kickoff at a time."""
    with flow._lock:
        if flow._running:
            raise Conflict(f"this {flow.flow_name} is already running: create another instance to run at the same time")
        flow._running = True
    try:
        yield
    finally:
        flow._running = False


def _do(execution: Execution) -> Outcome:
    """A method that is no coroutine function, in a thread of its own."""
    with timed(execution.cancel_scope, execution.method.timeout):
        return execution.do()


def _seen(state: states.State) -> dict[str, Any]:
    """The state as handlers see it. Values in the state are replaced, never changed, so a shallow copy will do."""
    return dict(state) if isinstance(state, dict) else states.dump(state, lambda name, value: None)  # noqa: ARG005
