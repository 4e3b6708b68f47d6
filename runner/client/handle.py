"""The handle of a run: follow it, wait for it, cancel it, fetch its files."""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from runner.client.files import OutputFile, files_of, write_files
from runner.core.clock import SYSTEM, Clock
from runner.core.errors import Conflict, Exit, LeadsOutside
from runner.core.ledger import LedgerRow, spent
from runner.core.prices import NO_PRICES
from runner.core.states import RunStatus
from runner.llm.list_prices import configured
from runner.modelserver.stubs import LABELS
from runner.providers.records import BranchRecord, Event, Question, ReadRun, RunRecord
from runner.providers.redis.runs import Runs
from runner.providers.redis.waiting_client import StillAway

if TYPE_CHECKING:  # most verbs do without what reads a crew's code
    from runner.client.store import Store
    from runner.client.submission import Prepared
    from runner.core.plan import Plan

T = TypeVar("T")

SHORTEST = 0.0001  #: seconds that a task takes at the least, on any machine: none is over before
TOGETHER = 0.01  #: seconds in which events are batched: a waiting client should not load the store with each of them

_TOLD = re.compile(r"(\d+) to (.+?)(?=, \d+ to |$)")

EXIT_OF = {
    RunStatus.completed: Exit.COMPLETED,
    RunStatus.failed: Exit.FAILED,
    RunStatus.cancelled: Exit.CANCELLED,
    RunStatus.waiting: Exit.WAITING,
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, or its state so far.

    ``status`` is running, completed, failed, cancelled or waiting. ``result`` is the last task's output as text, None
    until the run is completed. ``outputs`` are texts by task, in the order of the plan. ``ledger`` counts steps, tokens
    and cost (docs/concepts.md lists its keys). ``recoveries`` is how often a task was rescheduled.
    """

    run_id: str
    status: str
    branch: str
    result: str | None
    outputs: dict[str, str]
    ledger: dict[str, Any]
    recoveries: int
    error: str | None
    asked: tuple[Question, ...] = ()
    """The open questions, while the run awaits input."""
    models: str = ""
    """What replaced the vendors' models, in words; "" if nothing did."""
    usage_metrics: dict[str, int] = field(default_factory=dict)
    """What the crew's framework counts, summed over the tasks of the branch; empty if it counts nothing."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints; ``asked``, ``models`` and ``usage_metrics`` only if set."""
        found = {name: getattr(self, name) for name in self.__slots__ if name not in ("asked", "models")}
        if not self.usage_metrics:
            del found["usage_metrics"]
        asked = {"asked": [one.to_dict() for one in self.asked]} if self.asked else {}
        return {**found, **asked, **({"models": self.models} if self.models else {})}

    @property
    def exit_code(self) -> Exit:
        """The exit code of ``runner wait`` for this status."""
        return EXIT_OF.get(RunStatus(self.status), Exit.COMPLETED)


class Pace:
    """Decides how long a waiting client sleeps between two looks at a run: half of the estimated rest.

    It is at most 20 ms, or a fiftieth of the time so far, up to 50 ms: a failure cannot be predicted.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock, self._began = clock, clock.monotonic()
        self._at_first: int | None = None

    def rest(self, left: int, done: int | None = None) -> float:
        """Return the seconds to sleep while ``left`` tasks remain; by default ``done`` counts from the first look."""
        passed = self._clock.monotonic() - self._began
        if self._at_first is None:
            self._at_first = left
        done = self._at_first - left if done is None else done
        half = passed / done * left / 2 if done > 0 else max(passed, 0.001, SHORTEST * left)
        return min(half, max(0.02, min(passed / 50, 0.05)))


class ClientPort(Protocol):
    """What handles, batches and the verbs in modules of their own need of a `Client`, which imports all of them."""

    store: "Store"

    def fork(
        self,
        run_id: str,
        *,
        checkpoint: str | None = None,
        branch: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
        source: str | None = None,
    ) -> "RunHandle":
        """See `Client.fork`."""

    def resume(self, run_id: str, *, accept_code_change: bool = False, keep_code: bool = False) -> "RunHandle":
        """See `Client.resume`."""

    def accept(self, prepared: "Prepared", create: Callable[[], T]) -> T:
        """See `Client.accept`."""

    def calls_at_import(self, sha: str) -> dict[str, str]:
        """See `Client.calls_at_import`."""

    def ensure_worker(self, queue: str, plan: "Plan | None" = None) -> None:
        """See `Client.ensure_worker`."""

    def patient(self, call: Callable[[], T], handle: "RunHandle", keep_waiting: Callable[[], bool] = ...) -> T:
        """See `Client.patient`."""


@dataclass
class RunHandle:
    """Follows and controls a run: its current branch, or the ``branch`` that was asked for.

    ``created`` is False if `Client.submit` found an earlier run with the same id.
    """

    client: ClientPort
    id: str
    created: bool = True
    branch: str | None = None
    to_do: int = 0
    """How many tasks a fork started with."""
    notes: tuple[str, ...] = ()
    """Warnings and notes about how it started, each in a sentence."""
    _from: str = field(default="0", repr=False)

    @property
    def record(self) -> RunRecord:
        """Read and return the run's record."""
        return self.client.store.runs.get(self.id)

    @property
    def status(self) -> str:
        """The run's state: running, completed, failed, cancelled or waiting."""
        return self.client.store.runs.status(self.id, self.branch).value

    @property
    def words(self) -> str:
        """The arguments that name it on the command line: ``RUN``, or ``RUN --branch NAME``."""
        return self.id if self.branch is None else f"{self.id} --branch {self.branch}"

    @property
    def branches(self) -> list[BranchRecord]:
        """Return the run's branches, main first."""
        return self.client.store.runs.branch_records(self.id)

    def events(self, follow: bool = False, after: str | None = None) -> Iterator[Event]:
        """Iterate over the events so far (of ``branch``, if there is one); with ``follow``, until the run is over.

        ``after`` is the id of the event to start after.
        """
        last = self._from if after is None else after
        if not follow:
            yield from (e for e in self.client.store.runs.events(self.id, last) if self._tells(e, self.branch))
            return
        while True:
            over, _, found = self._look(last)
            yield from (event for event in found if self._tells(event, self.branch))
            last = found[-1].id if found else last
            if over and not found:
                return

    def calls_unrecorded(self) -> dict[str, int]:
        """Return how many model calls bypassed the journal, by host and path. A restarted task makes them again."""
        return unrecorded_in(self.events())

    def wait(self, timeout: float | None = None, on_event: Callable[[Event], None] | None = None) -> RunResult:
        """Wait until the run is over or awaits input, and return its result. ``on_event`` is called with each event.

        Raises TimeoutError after ``timeout`` seconds, also while the store is away; the run continues.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        last, pace, over = self._from, Pace(), False
        newest = ""

        def keep_waiting() -> bool:
            return time.monotonic() < end

        while True:
            with suppress(StillAway):
                if on_event is None:
                    over, newest = self._await(pace, newest, keep_waiting)
                else:
                    over, line, found = self._look(last, keep_waiting)
                    for event in found:
                        if self._tells(event, line):
                            on_event(event)
                    last = found[-1].id if found else last
                if over:
                    return self._result(keep_waiting)
            if over:
                raise TimeoutError(f"run {self.id} is over; the store was lost before its result was read")
            if not keep_waiting():
                raise TimeoutError(f"run {self.id} is still running after {timeout:g} s; the run continues")

    @staticmethod
    def _tells(event: Event, branch: str | None) -> bool:
        return branch is None or event.fields.get("branch", branch) == branch

    def _look(self, last: str, keep_waiting: Callable[[], bool] = lambda: True) -> tuple[bool, str, list[Event]]:
        """Return whether the branch is over, its name, and the events since ``last``; wait briefly for the first."""
        runs = self.client.store.runs

        def standing() -> tuple[RunStatus, str]:
            return runs.standing(self.id) if self.branch is None else (runs.status(self.id, self.branch), self.branch)

        status, line = self.client.patient(standing, self, keep_waiting)
        over = status.over
        look = partial(runs.events, self.id, last, None if over else 500)
        found: list[Event] = self.client.patient(lambda: list(look()), self, keep_waiting)
        if found and not over:
            time.sleep(TOGETHER)
        return over, line, found

    def _await(self, pace: "Pace", newest: str, keep_waiting: Callable[[], bool]) -> tuple[bool, str]:
        """Sleep until an event after ``newest``, or a while; return whether it is over, and the newest event's id."""
        runs = self.client.store.runs
        look = partial(runs.progress, self.id, self.branch, after=newest, block_ms=500)
        status, left, newest = self.client.patient(look, self, keep_waiting)
        over: bool = status.over
        if not over:
            time.sleep(pace.rest(left))
        return over, newest

    def result(self) -> RunResult:
        """Return the result of the run, or its state so far, without waiting."""
        return self._result()

    def _result(self, keep_waiting: Callable[[], bool] = lambda: True) -> RunResult:
        read = partial(result_of, self.client.store.runs, self.id, self.branch)
        result: RunResult = self.client.patient(read, self, keep_waiting)
        return result

    def ledger(self) -> dict[str, Any]:
        """Return the account of all branches so far: steps, tokens, cost (docs/concepts.md lists the keys)."""
        runs = self.client.store.runs
        run, calls, tools = self.client.patient(lambda: _account(runs, runs.get(self.id)), self)
        return ledger_of(run, calls, tools)

    def files(self) -> list[OutputFile]:
        """Return the ``output_file`` of each finished task; if two have the same path, the later one."""
        runs = self.client.store.runs
        record = self.record
        branch = self.branch or record.branch
        wanted = json.loads(runs.field(self.id, "output_files") or "{}")
        inputs = record.inputs | runs.branch(self.id, branch).inputs
        return list({one.path: one for one in files_of(runs.committed(self.id, branch), wanted, inputs)}.values())

    def write_output_files(self, folder: Path | None = None) -> list[Path]:
        """Write `files` below ``folder`` (default: the working directory) and return their paths.

        Raises `LeadsOutside` for the first file whose path leads out of the folder, after writing the others.
        """
        done = list(write_files(self.files(), folder or Path()))
        for one in done:
            if isinstance(one, LeadsOutside):
                raise one
        return [one for one in done if isinstance(one, Path)]

    def fork(
        self,
        *,
        checkpoint: str | None = None,
        branch: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
    ) -> "RunHandle":
        """Start a new branch from this one's head, or from ``checkpoint``; see `Client.fork`."""
        return self.client.fork(
            self.id, checkpoint=checkpoint, branch=branch, inputs=inputs, edits=edits, source=self.branch
        )

    def cancel(self, reason: str = "cancelled by a person") -> str:
        """Cancel all branches, or ``branch`` if there is one. Returns the former status. Raises `Conflict` if over."""
        was = self.client.store.runs.cancel(self.id, reason, self.branch)
        if was == "gone":
            self.status  # noqa: B018 - raises NotFound with the hint
        if was not in ("running", "waiting"):
            what = f"run {self.id}" if self.branch is None else f"branch {self.branch} of run {self.id}"
            raise Conflict(f"{what} is {was}: there is nothing to cancel")
        return was


def unrecorded_in(events: Iterable[Event]) -> dict[str, int]:
    """Return the model calls that bypassed the journal according to these events, by host and path."""
    texts = [event.fields["text"] for event in events if event.type == "calls_unrecorded"]
    found = Counter[str]()
    for many, place in _TOLD.findall(", ".join(texts)):
        found[place] += int(many)
    return dict(sorted(found.items()))


def _account(runs: Runs, run: RunRecord) -> tuple[RunRecord, Sequence[LedgerRow], Mapping[str, Mapping[str, int]]]:
    """Return a run with its calls of models and of tools, which are read if there are any."""
    return run, runs.ledger(run.id) if run.has_steps else (), runs.tools(run.id) if run.has_tools else {}


def ledger_of(
    run: RunRecord, calls: Sequence[LedgerRow], tools: Mapping[str, Mapping[str, int]], order: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the ledger of a run, with its rows in this order of tasks."""
    prices = NO_PRICES if run.standin else configured(run.created_at if run.has_steps else None)
    if calls:
        place = {task: i for i, task in enumerate(order)}
        calls = sorted(calls, key=lambda one: (one.branch != "main", one.branch, place.get(one.task, len(place))))
    by = [line.to_dict(prices) for line in calls]
    return {**run.ledger, **spent(calls, prices), "by": by, "by_tool": tools}


def lost_result(run_id: str, error: str) -> RunResult:
    """Return the result of a run that is gone from the store: nothing is known of it."""
    nothing = RunRecord(run_id, RunStatus.failed, "", "main", 0, None, error, "", "", "", {})
    ledger = {**nothing.ledger, **spent((), NO_PRICES), "by": [], "by_tool": {}}
    return RunResult(run_id, nothing.status.value, nothing.branch, None, {}, ledger, 0, error)


def result_of(runs: Runs, run_id: str, branch: str | None = None, read: ReadRun | None = None) -> RunResult:
    """Return the result of a run, or of one branch; ``read`` is its state, if the caller has read it."""
    if read is None:
        record = runs.get(run_id)
        name = branch or record.branch
        line = runs.branch(run_id, name)
        read = ReadRun(record, line, runs.committed(run_id, name), *_account(runs, record)[1:])
    run, line, committed, calls, tools = read
    branch = line.name
    try:
        plan = runs.plan(run_id, run.plan_digest)
    except Conflict:  # it is gone from the store: what was committed is shown in its own order
        plan = None
    wanted = plan.result if plan is not None else None
    in_order = sorted(committed, key=lambda key: committed[key].seq)
    planned = [task.key for task in plan.shown(in_order) if task.key in committed] if plan is not None else []
    newest = committed[in_order[-1]] if in_order else None
    used = [one.usage for one in committed.values() if one.usage]
    final = committed.get(wanted) if wanted else newest  # a plan that grows ends with what is committed last
    return RunResult(
        run_id=run_id,
        status=line.status.value,
        branch=branch,
        result=final.raw if final and line.status is RunStatus.completed else None,
        outputs={task: committed[task].raw for task in dict.fromkeys([*planned, *in_order])},
        ledger=ledger_of(run, calls, tools, [*planned, *in_order]),
        recoveries=run.recoveries,
        error=line.error or None,
        asked=tuple(runs.questions(run_id, branch)) if line.status is RunStatus.waiting else (),
        models=LABELS.get(run.standin, ""),
        usage_metrics=dict(sum(map(Counter, used), Counter())) if used else {},
    )
