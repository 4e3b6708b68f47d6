"""``flow.kickoff()`` in this process: performs the calls that the state machine decides.

Attempts are made on the caller's event loop; functions that are not coroutines are called in threads. A commit changes
state, log and machine under the lock of checkpoints, so every checkpoint shows whole methods only.
"""

import asyncio
import contextlib
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from runner.core.compatibility import TRIGGER_PAYLOAD
from runner.core.errors import BadFlow, Conflict, FlowLoop, InputRequired, one_line
from runner.core.idempotency import origin
from runner.core.jobs import Claim, Job
from runner.core.ledger import Counters
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion, Shared
from runner.engine import local
from runner.engine.attempt import Loaded
from runner.engine.decisions import Ask, Decision, Fail, Grown
from runner.engine.work import Conversation, Work
from runner.events import (
    BaseEvent,
    event_bus,
    push_event_scope,
    triggered_by_scope,
)
from runner.events import flow_events as events
from runner.flows import pending, persistence
from runner.flows import state as states
from runner.flows.adapter import FlowAdapter
from runner.flows.execution import Execution, Outcome, passed_on
from runner.flows.feedback import PendingFeedbackContext
from runner.flows.flow import Flow
from runner.flows.machine import Call, Machine
from runner.flows.on_loop import awaited, on_loop
from runner.flows.patch import Changed, changed_by, format_conflict, merge
from runner.flows.pending import from_pending as from_pending
from runner.journal.cancellation.timing import timed
from runner.journal.current_journal import nest
from runner.journal.journal import Journal
from runner.snapshots import Progress, RuntimeState, running
from runner.streaming import nested_kickoffs

T = TypeVar("T")

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
    inputs = dict(inputs or {})
    given = to_jsonable_python(inputs, fallback=str)
    async with _kicked_off(flow, given) as state:
        before = flow.given if flow._is_restored else {}
        known: set[str] = set()
        if not flow._is_restored:
            known = flow.completed_methods if flow._machine is None else known
            flow._reset()
            persistence.take_up(flow, inputs, state_id)
        # A program that is started again gives the same inputs again: the state has come from them already.
        fresh = {name for name in given if before.get(name, states.MISSING) != given[name]}
        if new := {name: value for name, value in inputs.items() if name in fresh}:
            states.give(flow.committed_state, new)
        if flow._machine is None:
            flow._machine = Machine(definition, flow.max_method_calls)
            flow._machine.begin()
            for call in flow._machine.pass_over(known):
                flow.log(call, Outcome(None))
        flow.inputs = {**(flow.inputs if flow._is_restored else {}), **inputs}
        flow.given = given
        return await FlowMethods(flow, flow._machine, state).perform_all()


async def resume(flow: Flow[Any], answer: str, method: str | None) -> Any:
    """Answer the question of a waiting flow, and resume it."""
    waiting = [pending.context for pending in flow._asked.values() if method in (None, pending.context.method_name)]
    if not waiting or flow._machine is None:
        whose = f" of method {method!r}" if method else ""
        raise Conflict(f"flow {flow.flow_name} is not awaiting an answer{whose}: nothing was asked, or it was answered")
    async with _kicked_off(flow, flow.given) as state:
        question = waiting[0]
        steps = flow._steps.setdefault(question.call, {})
        steps[question.step] = json.dumps(answer)
        del flow._asked[question.call]
        try:
            result = await FlowMethods(flow, flow._machine, state).perform_all()
            if not flow._asked:
                pending.forget(flow)
            return result
        except Exception:
            if question.call in flow._machine.pending:
                # The answer was none, or nothing came of it: it is forgotten, and the question stands.
                steps.pop(question.step, None)
                flow.wait_for(question)
            raise


@contextlib.asynccontextmanager
async def _kicked_off(flow: Flow[Any], given: Any) -> AsyncIterator[RuntimeState | None]:
    """The state to run in. A flow object has one state, so it runs one kickoff at a time.

    At the end, however the kickoff ended, all handlers have received its events.
    """
    with flow._lock:
        if flow._running:
            raise Conflict(f"this {flow.flow_name} is already running: create another instance to run at the same time")
        flow._running = True
    try:
        with nested_kickoffs.inside(), running(flow, given) as state:
            yield state
    finally:
        flow._running = False
        await asyncio.to_thread(event_bus.flush)


class FlowMethods(local.LocalTasks):
    """The methods of one kickoff, as tasks of the engine."""

    def __init__(self, flow: Flow[Any], machine: Machine, state: RuntimeState | None) -> None:
        around = nest("flow", flow.flow_name, flow.given)
        super().__init__(partial(MethodAttempt, self), state.lock if state is not None else flow._lock, around)
        self.flow, self.machine, self._state = flow, machine, state
        self.crew_name, self.inputs = flow.flow_name, flow.inputs
        self.changed: list[Changed] = []
        self.begun: dict[str, Execution] = {}
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="method")
        self._open_starts: dict[str, list[str]] = {}

    async def perform_all(self) -> Any:
        """Run everything that is pending and what it triggers, and emit how the flow ended."""
        flow, state = self.flow, self._state
        if state is not None:
            with state.lock:
                state.progress[id(flow)] = Progress(given=flow.given)
        self._open_scope()
        try:
            self.unlock(PlannedTask(key) for key in self.machine.pending if key not in flow._asked)
            await local.aperform(lambda job: asyncio.create_task(self._perform(job), name=job.task), self.take())
        except BaseException as error:
            self._emit(events.FlowFailedEvent, error=f"{type(error).__name__}: {one_line(error)}")
            raise
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
        state_now = _event_state(flow.committed_state)
        if flow._asked:
            asked = next(iter(flow._asked.values()))
            pending.keep(flow, asked)
            about = {"method_name": asked.context.method_name, **_question(asked.context)}
            self._emit(events.FlowPausedEvent, **{**about, "flow_id": flow.flow_id}, state=state_now)
            return asked
        result = flow.method_outputs[-1] if flow._method_outputs else None
        self._emit(events.FlowFinishedEvent, result=result, state=state_now)
        return result

    async def _perform(self, job: Job) -> list[Job]:
        """Run one call, from its started event to the calls that it triggers."""
        call = self.machine.pending[job.task]
        caused_by = self.flow._finished_events.get(call.by)
        with triggered_by_scope(caused_by) if caused_by else contextlib.nullcontext():
            self._begin(call)
            try:
                return await on_loop(partial(self.perform, job))
            except InputRequired:
                if call.key not in self.flow._asked:
                    raise  # a crew inside of the method asks
                return []

    def pause(self, seconds: float) -> None:
        """Wait between attempts while the loop runs other calls."""
        awaited(asyncio.sleep(seconds))

    def in_thread(self, do: Callable[[], T]) -> T:
        """Call ``do`` in a thread with a copy of this context, and return its result."""
        run = contextvars.copy_context().run
        return awaited(asyncio.get_running_loop().run_in_executor(self._pool, run, do))

    def steps(self, key: str) -> local.Steps:
        """Return the recorder for the steps of a call."""
        return local.Steps(self.flow._steps.setdefault(key, {}), self.nest, key)

    def execution(self, call: Call) -> Execution:
        """Return an execution of a call, on the current state."""
        flow, method = self.flow, self.flow.flow_definition().methods[call.method]
        made = Execution(flow, method, call, self._argument(call), flow.inputs.get(TRIGGER_PAYLOAD), len(self.changed))
        made.awaited = awaited if made.is_async else None
        return made

    def _argument(self, call: Call) -> Any:
        entry = self.flow.entry_of(call.by) if call.by else None
        return states.MISSING if entry is None else passed_on(entry.get("feedback"), call, entry["output"])

    # -- what is kept, and told

    def _begin(self, call: Call) -> None:
        """Start a method: a new one, or in the scope that it opened in the lost process."""
        execution = self.begun[call.key] = self.execution(call)
        opened = self._open_starts.get(call.method)
        if opened:
            push_event_scope(opened.pop(), "method_execution_started")
            return
        params = {f"_{i}": argument for i, argument in enumerate(execution.arguments())}
        self.emit_of(events.MethodExecutionStartedEvent, call, params=params, state=_event_state(execution.base))

    def paused(self, call: Call) -> None:
        """A call waits for a person."""
        about = _question(self.flow._asked[call.key].context)
        state = _event_state(self.flow.committed_state)
        self.emit_of(events.MethodExecutionPausedEvent, call, **about, state=state)

    def _open_scope(self) -> None:
        """Start the flow. A restored one delivers its earlier events again, and continues in its open scopes."""
        flow, state = self.flow, self._state
        if flow._is_restored and state is not None:
            flow._is_restored = False
            opened = self._retell(state.event_record)
            if opened is not None:
                push_event_scope(opened, "flow_started")
                flow.kickoff_event_id = opened
                return
        flow._is_restored = False
        event = events.FlowStartedEvent(flow_name=flow.flow_name, inputs=flow.inputs or None)
        event_bus.emit(flow, event)
        flow.kickoff_event_id = event.event_id

    def _retell(self, record: Any) -> str | None:
        """Deliver recorded events of methods to handlers again. Returns the flow's start event if it is open."""
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

    def emit_of(self, kind: type[BaseEvent], call: Call, **about: Any) -> BaseEvent:
        """Emit an event of a call."""
        return self._emit(kind, method_name=call.method, **about)

    def _emit(self, kind: type[BaseEvent], **about: Any) -> BaseEvent:
        event = kind(flow_name=self.flow.flow_name, **about)  # type: ignore[call-arg]  # a pydantic model's own fields
        if not self.flow.suppress_flow_events:
            event_bus.emit(self.flow, event)
        return event


class MethodAttempt(local.LocalAttempt):
    """An attempt at a call of a method, with the flow of this process."""

    def __init__(self, tasks: FlowMethods, claim: Claim) -> None:
        call = tasks.machine.pending[claim.job.task]
        self.tasks, self._call = tasks, call
        self.execution = tasks.begun.pop(call.key) if claim.job.attempt == 1 else tasks.execution(call)
        super().__init__(tasks, claim, (self.execution.method.max_retries, self.execution.method.retry_delay))
        self.cancel_scope.of_coroutine = self.execution.is_async
        self.origin, self.conversation = origin(), Conversation()

    def load(self, journal: Journal) -> Loaded:
        """Return the method. Handlers receive its model calls."""
        self.execution.journal, journal.watched = journal, True
        return Loaded(self, HERE, Plan(self.claim.crew, (PlannedTask(self._call.key),)), growing=HERE)

    def do(self) -> Outcome:
        """Run the method within its timeout."""
        with timed(self.cancel_scope, self.execution.method.timeout):
            return self.execution.do()

    @contextlib.contextmanager
    def at_work(self, loaded: Loaded, journal: Journal) -> Iterator[None]:  # noqa: ARG002 - the port's names
        """Make this the current execution for the flow's code, also in threads that it starts."""
        flow = self.tasks.flow
        with flow._lock:
            flow._at_work[self._call.key] = self.execution
        try:
            yield
        finally:
            with flow._lock:
                flow._at_work.pop(self._call.key, None)

    def record(self, decision: Decision, replayed: Counters) -> None:
        """Put the method's result and event into the state, and save the state if there is a persistence."""
        self._steps.end(replayed)
        if isinstance(decision, Grown):
            self.tasks.unlock(decision.expand(Shared()).ready)
            persistence.keep(self.tasks.flow, self._call.method)

    def ended(self, decision: Decision) -> None:
        """Emit that the method waits or failed."""
        match decision:
            case Ask() if self._call.key in self.tasks.flow._asked:
                self.tasks.paused(self._call)
            case Fail(error=Exception() as error):
                self.tasks.emit_of(events.MethodExecutionFailedEvent, self._call, error=error)


@dataclass(frozen=True)
class Merging:
    """The changes of a finished method, to be merged into the flow's current state."""

    attempt: MethodAttempt
    outcome: Outcome
    record: dict[str, Any] = field(default_factory=dict)

    def __call__(self, shared: Shared) -> Expansion:  # noqa: ARG002 - the port's name
        """Advance state, log and machine together, and with them what a checkpoint then contains. Raises `FlowLoop`."""
        execution, outcome, tasks = self.attempt.execution, self.outcome, self.attempt.tasks
        call, flow = execution.call, tasks.flow
        with tasks.lock, flow._lock:
            patch, paths = merge(
                states.fields(execution.base), states.fields(flow.committed_state), states.fields(execution.state)
            )
            states.put(flow.committed_state, patch)
            since = tasks.changed[execution.began :]
            tasks.changed.append((call.method, (*patch.put, *patch.gone)))
            flow.log(call, outcome)
            loop: FlowLoop | None = None
            triggered: list[Call] = []
            try:
                triggered = tasks.machine.finish(call.key, outcome.signal)
            except FlowLoop as error:
                loop = error
            if paths:
                text = format_conflict(paths, call.method, since)
                logger.warning("%s: %s", flow.name or type(flow).__name__, text)
                others = dict.fromkeys(one for path in paths for one in changed_by(path, since))
                tasks.emit_of(events.FlowStateConflictEvent, call, fields=paths, others=list(others), text=text)
            event = tasks.emit_of(
                events.MethodExecutionFinishedEvent,
                call,
                result=outcome.output,
                state=_event_state(flow.committed_state),
            )
            flow._finished_events[call.key] = event.event_id
        if loop is not None:
            raise loop
        return Expansion("", tuple(PlannedTask(call.key) for call in triggered))


class _Here(FlowAdapter):
    """The adapter for methods of flows in this process."""

    def expand(self, crew: MethodAttempt, work: Work) -> Merging:  # noqa: ARG002 - the port's name
        """Run one method without blocking the event loop."""
        return Merging(crew, crew.do() if crew.execution.is_async else crew.tasks.in_thread(crew.do))


HERE = _Here()


def _question(context: PendingFeedbackContext) -> dict[str, Any]:
    return {"flow_id": context.flow_id, "message": context.message, "emit": context.emit}


def _event_state(state: states.State) -> dict[str, Any]:
    """The state for handlers. Values in it are replaced, never changed, so a shallow copy suffices."""
    return dict(state) if isinstance(state, dict) else states.dump(state, lambda name, value: None)  # noqa: ARG005 - a hook's arguments
