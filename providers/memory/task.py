"""The writes of a worker that holds a task: steps, events, and then a commit or a release."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, NextStep, Usage, text_of_one
from runner.core.plan import PlannedTask
from runner.core.plan.dependencies import NOTHING
from runner.core.plan.expansion import Expansion
from runner.core.redaction import redact
from runner.core.settings import MAX_HANDOVERS
from runner.core.states import TaskState
from runner.journal.acknowledged_writes import Log
from runner.journal.recorder import BegunStep, DoneStep
from runner.journal.shared_memory import SentCalls
from runner.providers.memory import account
from runner.providers.memory.claims import given, take
from runner.providers.memory.events import Relatives, close_open, emit
from runner.providers.memory.state import Branch, Memory, OpenEvent, Output, Run, Task, atomic
from runner.providers.memory.transitions import (
    checkpoint,
    complete,
    fail,
    give_up,
    number_steps,
    open_task,
    requeue,
    reschedule,
    unlock,
    wait_if_asked,
)
from runner.providers.records import DeferredEvent, Ending, EventDetails


@atomic
class MemoryTask:
    """The writes that a claim allows. Each shows the token; `ClaimLost` if it no longer holds.

    ``outgoing`` is told which calls have left: what it knows of a task whose process died, `reap` is told.
    ``end_events`` are the sequences of the events that ended the task and, with it, its branch; 0 where it did not.
    ``next`` is what its commit claimed for a process that continues.
    """

    can_wait = True

    def __init__(
        self, memory: Memory, claim: Claim, outgoing: Callable[[str], None] | None = None, log: Log | None = None
    ) -> None:
        self._memory = memory
        self._claim = claim
        self._place = (claim.job.run_id, claim.job.branch, claim.job.task)
        self._reached = 0  # records that this attempt replayed or made: its progress
        self._open = Counters()  # the steps that are begun, and neither recorded nor dropped
        self._out = SentCalls(claim.token, outgoing)
        self._log = log.claim if log is not None else None
        self._reserved: bool | None = None  # a note is there for the next step; False: that began
        self._expected = STEP  # for which it is
        self._next = NextStep()
        self.end_events = (0, 0)
        self.next: Claim | None = None

    def place(self, step: str) -> str:
        """Return where a step is recorded: in a journal of its own, so by its name."""
        return step

    # -- steps

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Note that a step begins: one that runs without a note could not be counted as in doubt."""
        self._open.subtract(supersedes)
        self._open[entry] += 1
        if not intent_only:
            self._out.count(entry, 1)
        self._next.begins(entry, soon=True)
        if self._reserved and entry == self._expected and not supersedes:
            self._reserved = False
            if entry == STEP:
                self._out.unnoted(self._open[STEP])
            return
        self._note_open()

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        self._out.count(entry, 1)

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """A begun step raised: it is not in doubt. Where the claim is lost, whoever took it back has counted it."""
        if not intent_only:
            self._out.count(entry, -1)
        self._open[entry] = max(self._open[entry] - 1, 0)
        if self._reserved is False and entry == self._expected:
            self._reserve(True)
        elif self._memory.held(self._place, self._claim.token) is not None:
            self._note_open()
        else:
            self._reserve(None)

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters | int,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record a step's result, once: who records it again changes nothing."""
        task = self._write("step")
        served = _tally(replayed)
        reserved = None
        if entry is not None:
            if self._open[entry] > 0 and self._out.is_read:
                reserved, self._next.recorded = self._next.get(entry), entry
            self._open[entry] = max(self._open[entry] - 1, 0)
        if reserved is not None:
            self._open[reserved] += 1
            self._expected = reserved
        task.begun, task.reserved = self._under_way(), reserved
        if reserved is not None:
            self._open[reserved] -= 1
        self._reached += 1 + (served.passed if isinstance(replayed, Counters) else replayed)
        begun = task.begun.text()
        if self._reached > task.reached:  # a task that gets on is not the one that kills its workers
            task.crashes, task.handed, task.reached = 0, 0, self._reached
        journal = task.branch.journals.setdefault(task.key, {})
        if step not in journal:
            journal[step] = value
            if entry is not None:
                account.add(task, "paid", Counters([entry]), usage)
            account.add(task, "replayed", served)
            tokens = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
            task.branch.run.counters.update(tokens)
            task.prompt_tokens += usage.prompt_tokens
            task.completion_tokens += usage.completion_tokens
            if entry is not None and entry.kind == "model" and not reported:
                self._emit(task, "llm_call_completed", model=entry.model, agent=entry.agent, **usage.by_name())
        if self._log is not None:
            self._log.recorded((step,), text_of_one(entry) if entry is not None else "", begun)
        if entry is not None:
            self._out.count(entry, -1)
        self._reserve(None if reserved is None else True)

    def record_steps(
        self, done: Sequence[DoneStep], *, dropped: int = 0, begins: Sequence[BegunStep] = (), replayed: Counters | int
    ) -> None:
        """Record what steps side by side gave, and note those that begin next."""
        self._write("step")
        for one in done:
            how: dict[str, Any] = {"entry": one.entry, "usage": one.usage, "reported": one.reported}
            self.record_step(one.step, one.value, replayed=replayed, **how)
            replayed = 0
        self._next.recorded = None
        self._open[STEP] = max(self._open[STEP] - dropped, 0)
        self._begin(begins)
        self._note_open()

    def begin_steps(self, begins: Sequence[BegunStep]) -> None:
        """Note that several begin."""
        if len(begins) == 1:
            entry, supersedes, intent_only = begins[0]
            self.begin_step(entry, supersedes=supersedes, intent_only=intent_only)
            return
        self._next.recorded = None
        self._begin(begins)
        self._note_open()

    def _begin(self, begins: Sequence[BegunStep]) -> None:
        for entry, supersedes, intent_only in begins:
            self._open.subtract(supersedes)
            self._open[entry] += 1
            if not intent_only:
                self._out.count(entry, 1)

    # -- events

    def note(self, kind: str, text: str) -> None:
        """Put a line among the run's events."""
        self._emit(self._hold(), kind, text=redact(text))

    def append_event(self, kind: str, about: str, *, trigger: str = "", **details: Unpack[EventDetails]) -> int:
        """Put an event of the task's code among the run's. Returns its sequence. ``trigger`` is for a checkpoint."""
        task = self._hold()
        branch = task.branch
        named = (details.get("parent", 0), details.get("started", 0), details.get("cause", 0))
        parent, started, cause = (one if isinstance(one, int) else one.sequence or 0 for one in named)
        parent = parent or task.started
        seq = emit(branch, kind, about, Relatives(parent, started, cause), **(details.get("more") or {}))
        task.open = [one for one in task.open if one.seq != started]
        if ends := details.get("ends"):
            task.open.append(OpenEvent(seq, parent, ends, about))
        if trigger and branch.is_active:
            before = branch.seq
            checkpoint(branch, trigger, task.key)
            if branch.seq > before:
                number_steps(task)
        return seq

    def defer_event(self, kind: str, about: str, **details: Unpack[EventDetails]) -> DeferredEvent:
        """The same of one whose sequence is not needed yet."""
        return DeferredEvent(self.append_event(kind, about, **details))

    # -- the end

    def commit(self, output: str, unlocks: Iterable[PlannedTask], **how: Unpack[Ending]) -> str:
        """End the task with its output, a JSON object. Returns the branch's status after it, also a second time."""
        self._note_open_again()
        done = self._done()
        if done is not None:
            return done
        task = self._write("commit")
        self._end(task, output, how)
        ready = [planned for planned in unlocks if planned.may_run(task.branch.outputs)]
        return self._continue(task.branch, ready, how)

    def expand(self, expansion: Expansion, version: str, **how: Unpack[Ending]) -> bool:
        """End a task of a plan that grows. False if the shared texts are of another version: nothing was done."""
        self._note_open_again()
        if self._done() is not None:
            return True
        task = self._write("commit")
        branch = task.branch
        if branch.version != version:
            return False
        self._end(task, expansion.output, how, expansion)
        branch.left += len(expansion.ready)
        branch.run.planned += len(expansion.ready)
        self._continue(branch, expansion.ready, how)
        return True

    def ask(self, step: str, question: str, *, replayed: Counters | int) -> None:
        """Hand the task back until a person has answered; ``step`` of its journal is where the answer belongs."""
        task = self._give_back("ask", replayed)
        task.branch.journals.get(task.key, {}).pop(step, None)  # what stood there was no answer
        task.state, task.step, task.question = TaskState.asked, step, question
        task.branch.asked += 1
        self._emit(task, "task_asked")
        if task.branch.is_active:
            wait_if_asked(task.branch)

    def release(self, *, replayed: Counters | int, max_handovers: int = MAX_HANDOVERS) -> None:
        """Hand the task back, to run elsewhere at once. After ``max_handovers`` without progress it fails instead."""
        task = self._give_back("release", replayed, handed_over=True)
        task.branch.run.counters["recoveries"] += 1
        self._emit(task, "task_released", attempt=task.attempt, worker=self._claim.worker, reason="drain")
        reschedule(task, worker=self._claim.worker, reason="its worker was asked to end", most=max_handovers)

    def retry(self, delay: float, reason: str, *, replayed: Counters | int, trace: str = "") -> None:
        """Hand the task back, to run again after ``delay`` seconds."""
        task = self._give_back("retry", replayed)
        task.failures += 1
        task.failed += 1
        task.trace = trace
        ms = int(delay * 1000)
        self._emit(task, "task_retried", attempt=task.attempt, delay_ms=ms, reason=redact(reason))
        if task.branch.is_active:
            task.state = TaskState.delayed
            self._memory.due[task.place] = self._memory.now() + ms
        else:
            requeue(task)

    def fail(self, reason: str, *, replayed: Counters | int, trace: str = "") -> None:
        """Fail the task for good, and with it the branch."""
        task = self._give_back("fail", replayed)
        task.trace = trace
        self.end_events = fail(task, worker=self._claim.worker, reason=redact(reason))

    # -- inside

    def _hold(self) -> Task:
        """The task, while the claim holds. Raises `ClaimLost`."""
        task = self._memory.held(self._place, self._claim.token)
        if task is None:
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost: token {self._claim.token} no longer holds")
        return task

    def _write(self, operation: str) -> Task:
        """The same; a lost claim also records the refused write among the run's events."""
        try:
            return self._hold()
        except ClaimLost:
            branch = self._memory.branch(*self._place[:2])
            if branch is not None:
                about = {"token": self._claim.token, "operation": operation}
                emit(branch, "write_refused", self._place[2], **about)
            raise

    def _note_open(self) -> None:
        if self._log is not None:
            self._log.began(self._open.text())
        self._reserve(None)
        task = self._hold()
        task.begun, task.reserved = self._under_way(), None

    def _reserve(self, reserved: bool | None) -> None:
        if self._reserved is False and self._expected == STEP:
            self._out.unnoted(0)
        self._reserved = reserved

    def _note_open_again(self) -> None:
        """Before the end of the task: which steps are under way in truth."""
        if self._reserved is False:
            self._note_open()
        elif self._reserved and self._log is not None:
            self._log.began(self._open.text())
        self._reserve(None)

    def _under_way(self) -> Counters:
        return Counters({entry: many for entry, many in self._open.items() if many > 0})

    def _emit(self, task: Task, kind: str, /, **fields: object) -> None:
        """Emit an event in the task's own scope."""
        emit(task.branch, kind, task.key, Relatives(task.started), **fields)

    def _give_back(self, operation: str, replayed: Counters | int, *, handed_over: bool = False) -> Task:
        self._note_open_again()
        task = self._write(operation)
        account.add(task, "replayed", _tally(replayed))
        give_up(task, handed_over=handed_over, unused=True)
        if self._log is not None:
            self._log.ended(operation)
        return task

    def _done(self) -> str | None:
        """The branch's status, if this very claim committed before: its answer may have been lost."""
        branch = self._memory.branch(*self._place[:2])
        output = branch.outputs.get(self._place[2]) if branch is not None else None
        if branch is None or output is None or output.token != self._claim.token:
            return None
        return branch.status.value

    def _end(self, task: Task, output: str, how: Ending, expansion: Expansion | None = None) -> None:
        """The output, the account, the event and the checkpoint of a task that is done."""
        branch, key = task.branch, task.key
        branch.seq += 1
        seq = branch.seq
        branch.outputs[key] = Output(
            seq, self._claim.token, how.get("used", NOTHING), self._stored(task, seq, output, how.get("ms"))
        )
        close_open(task)
        del branch.tasks[key]
        if key not in branch.steps or not branch.checkpoints:  # else one within it needs its journal
            branch.journals.pop(key, None)
            branch.steps.pop(key, None)
        self._memory.claims[self._claim.worker].pop(task.place, None)
        account.add(task, "replayed", _tally(how["replayed"]))
        account.add(task, "in_doubt", task.noted(unused=True))  # what its threads are still at
        ended = emit(branch, "task_completed", key, Relatives(task.scope, task.started), commit_seq=seq)
        self.end_events = (ended, 0)
        if expansion is not None:
            branch.version = str(seq)
            branch.shared |= expansion.put
            for field in expansion.gone:
                branch.shared.pop(field, None)
            for kind, text in expansion.notes:
                emit(branch, kind, key, text=text)
        checkpoint(branch, "task_completed", key)
        branch.left -= 1
        if self._log is not None:
            self._log.ended("commit")

    def _continue(self, branch: Branch, ready: Sequence[PlannedTask], how: Ending) -> str:
        """Return the branch's status after the task: what is ready is sent, except what the process continues with."""
        going, process = None, how.get("process", "")
        if branch.is_active:
            going = open_task(branch, ready[0]) if ready and process else None
            for planned in ready[1:] if going is not None else ready:
                unlock(branch, planned)
            if branch.left == 0:
                self.end_events = (self.end_events[0], complete(branch))
            else:
                wait_if_asked(branch)
        going = going or self._waiting(branch.run, process, how.get("queue", ""))
        if going is not None:
            take(going, worker=self._claim.worker, process=process, nonce=uuid.uuid4().hex)
            self.next = given(going)
        return branch.status.value

    def _waiting(self, run: Run, process: str, queue: str) -> Task | None:
        """The task of a queue's oldest job, taken out of it, if the process may do it next: see ``waiting.lua``."""
        waiting = self._memory.queues[queue] if queue else ()
        if not (process and waiting):
            return None
        job = waiting[0]
        task = self._memory.task(job.run_id, job.branch, job.task)
        if task is None or (other := task.branch.run) is run or not task.branch.is_active:
            return None
        alike = all(run.fields.get(name) == other.fields.get(name) for name in ("adapter", "environment"))
        if not alike or task.state is not TaskState.queued or task.attempt != job.attempt:
            return None
        self._memory.queues[queue].popleft()
        return task

    def _stored(self, task: Task, seq: int, output: str, ms: int | None) -> str:
        """Return the record, as `runner.providers.records.committed_record` reads it."""
        about: dict[str, Any] = {"seq": seq, "token": self._claim.token}
        if task.began is not None:
            about["by"] = [self._claim.worker, task.attempt, task.began, self._memory.now() - task.began]
        if task.prompt_tokens or task.completion_tokens:
            about["tokens"] = [task.prompt_tokens, task.completion_tokens]
        if ms is not None:
            about["ms"] = ms
        return f"{json.dumps(about, ensure_ascii=False)[:-1]}, {output[1:]}"


def _tally(count: Counters | int) -> Counters:
    """Of a tally, or of a number of a person's steps."""
    return count if isinstance(count, Counters) else Counters({STEP: count})
