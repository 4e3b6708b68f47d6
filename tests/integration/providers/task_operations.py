"""What the process that has a task writes, to Redis and to memory alike."""

import contextlib
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.output import dump
from runner.core.plan.branching import branch_plan
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.memory.task import MemoryTask
from runner.providers.redis.store import ClaimedTask

from .sides import REFUSED, Event, Sides, Task, answer, comparable
from .worker_operations import MOST_HANDOVERS


class TaskOperations(Sides):
    """Steps, events and the end of a claimed task. Every method ends with a `check`."""

    def write(
        self, claim: Claim, write: Callable[[Any], Any], *, again: str = "", lost: bool = False, silent: bool = False
    ) -> Any:
        """Do it to both; returns memory's answer, or that it refused. An answer that is ``lost`` is asked for again;
        ``again`` says where that is refused, as the first one ended the claim. ``silent``: a script comes first that
        says nothing of a refusal among the run's events, and whose answer is the one that is lost."""
        task = self.task_of(claim)
        redis, memory = task
        lost = lost and task.settle is None
        if self._heard_refusal(task, partial(write, redis)):
            return REFUSED
        if lost and task.deferred:  # what is to be lost is the answer to this write
            task.line.load(redis._append.script)
        task.flush()
        due = answer(partial(write, memory))
        if lost and not silent and (due is REFUSED or again is REFUSED):
            assert answer(partial(write, memory)) is REFUSED
        task.line.reconnected = False  # likewise
        if lost and again is REFUSED and redis._reserved is False:  # nor to the note that is owed before an end
            with contextlib.suppress(ClaimLost):
                redis._note_surely()
        task.line.lose = int(lost)
        found = answer(partial(write, redis))
        task.line.lose = 0
        assert found == (REFUSED if lost and again is REFUSED else due)
        self.check(refused=due is REFUSED)
        return due

    def _heard_refusal(self, task: Task, write: Callable[[], Any]) -> bool:
        """Whatever is written after a record that was posted hears first what came of that: where it was refused,
        nothing is written."""
        if not task.is_refused:
            task.settle = None
            return False
        assert answer(write) is REFUSED
        self._refuse(task)
        return True

    def _refuse(self, task: Task) -> None:
        refusal, task.settle, task.is_refused, task.refusal = task.refusal, None, False, None
        assert refusal is None or answer(refusal) is REFUSED
        self.check(refused=True)

    def log(self, claim: Claim) -> None:
        self.write(claim, lambda task: task.note("log", "so far"))

    def tell(self, claim: Claim, kind: str, **how: Any) -> Event | None:
        """Returns the event; None where the claim is lost."""
        event = Event(kind, claim.job.task, more={"tool": "x"}, **how)

        def tell(task: Any) -> int:
            side = "memory" if isinstance(task, MemoryTask) else "redis"
            getattr(event, side).sequence = seq = event.tell(side, task.append_event)
            return int(seq)

        return None if self.write(claim, tell) is REFUSED else event

    def defer(self, claim: Claim, kind: str, **how: Any) -> Event:
        """Tell an event that goes with the next write, of which memory hears then."""
        task, event = self.task_of(claim), Event(kind, claim.job.task, more={"tool": "x"}, **how)
        event.redis = event.tell("redis", task.redis.defer_event)
        task.deferred.append(event)
        self.check(unchanged=True)
        return event

    def send_late(self, claim: Claim) -> None:
        """Nothing was written for a moment after events were told: they go by themselves."""
        task = self.task_of(claim)
        if task.settle is None:
            task.flush()
        task.redis._send_deferred()
        if task.settle is None:
            task.line.settle()
        self.check()

    def lose_events(self, claim: Claim, when: str) -> None:
        """Events that were told are lost with their connection as they go with what is written next, ``before`` they
        are there or ``after``: here, with what does not return before they are there."""
        task = self.task_of(claim)
        if task.deferred and task.settle is None and self.memory.holds(claim):
            task.line.load(task.redis._append.script)
            task.line.lose_events = when

    def begin_step(self, claim: Claim, entry: AccountKey = STEP, *, soon: bool = True) -> None:
        """Nobody waits for the answer where the store was heard a moment ago, so who lost the claim does the step all
        the same, and learns that later. Where that was not ``soon``, it waits; and no reserved note is used."""
        task = self.task_of(claim)
        redis, memory = task
        if self._heard_refusal(task, lambda: redis.begin_step(entry)):
            return
        task.flush()
        heard = redis._heard
        if not soon or (entry != STEP and not self.memory.holds(claim)):  # a call too late is held by `test_reserved`
            redis._heard = -math.inf
            if redis._posted is not None:  # whose answer, which is heard first, says that the claim held then
                redis._posted.at = -math.inf
            memory._next.begins(entry, soon=False)
            memory._reserve(None)
        due = answer(lambda: memory.begin_step(entry))
        found = answer(lambda: redis.begin_step(entry))
        redis._heard = max(heard, redis._heard)
        task.line.settle()  # nobody waits for a step's begin; the test does
        if due is REFUSED and found is not REFUSED:
            self.too_late[claim.job.run_id] += 1
        else:
            assert found == due
        self.check()

    def begin_steps(self, claim: Claim, begins: list[AccountKey]) -> None:
        """Several begin at about the same time. Who lost the claim: as one step."""
        task = self.task_of(claim)
        if not self.memory.holds(claim) or task.is_refused:
            return
        task.settle = None
        task.flush()
        for side in task:
            side.begin_steps([BegunStep(entry) for entry in begins])
        task.line.settle()
        self.check()

    def drop_step(self, claim: Claim, entry: AccountKey = STEP) -> None:
        task = self.task_of(claim)
        if self._heard_refusal(task, lambda: task.redis.drop_step(entry)):
            return
        task.flush()
        held = self.memory.holds(claim)
        task.memory.drop_step(entry)
        task.redis.drop_step(entry)
        task.line.settle()
        self.check(unchanged=not held)

    def record_step(
        self, claim: Claim, step: str, *, entry: AccountKey = STEP, replayed: int, tokens: int, lost: bool
    ) -> None:
        value = f'"{step} {next(self.numbers)}"'
        usage = Usage(10 * tokens, tokens, *([3, 0, 0, 1] if tokens > 1 else [])) if tokens else NO_TOKENS
        served: Counters | int = replayed
        if entry.kind == "model":
            served = Counters()
            for _ in range(replayed):
                served.served(entry, Usage(7, 2))
        self.write(
            claim,
            lambda task: task.record_step(step, value, replayed=served, entry=entry, usage=usage),
            lost=lost,
            silent=not replayed and (entry.kind == "model" or (entry.kind == "step" and not tokens)),
        )

    def record_steps(
        self,
        claim: Claim,
        steps: dict[str, AccountKey | None],
        *,
        dropped: int,
        begins: list[AccountKey],
        replayed: int,
        tokens: int,
        lost: bool,
        posted: bool = False,
    ) -> None:
        """Record several; ``posted``: without waiting for the answer."""
        usage = Usage(10 * tokens, tokens, *([3, 0, 0, 1] if tokens > 1 else []))
        done = [
            DoneStep(step, f'"{step} {next(self.numbers)}"', entry, usage if entry not in (None, STEP) else NO_TOKENS)
            for step, entry in steps.items()
        ]
        how = {"dropped": dropped, "begins": [BegunStep(entry) for entry in begins], "replayed": replayed}
        if not posted:
            self.write(claim, lambda task: task.record_steps(done, **how), lost=lost)
            return
        self.post(claim, lambda task: task.record_steps(done, **how), lambda task: task.post_steps(done, **how))

    def post_step(self, claim: Claim, step: str, entry: AccountKey, usage: Usage) -> None:
        """Record a call without waiting for the answer."""
        how: dict[str, Any] = {"replayed": 0, "entry": entry, "usage": usage, "reported": False}
        value = f'"{step} {next(self.numbers)}"'
        self.post(
            claim,
            lambda task: task.record_step(step, value, **how),
            lambda task: task.post_step(step, value, **how),
            silent=True,
        )

    def post(
        self,
        claim: Claim,
        write: Callable[[MemoryTask], None],
        post: Callable[[ClaimedTask], Callable[[], None]],
        *,
        silent: bool = False,
    ) -> None:
        """Redis has the record when this returns, and the process does not know that yet. ``silent``: a refusal is
        among the run's events only when the process hears of it."""
        task = self.task_of(claim)
        if self._heard_refusal(task, lambda: post(task.redis)):
            return
        task.flush()
        task.line.reconnected = False
        settle = post(task.redis)
        task.settle = settle
        if silent and not self.memory.holds(claim):
            task.is_refused, task.refusal = True, partial(write, task.memory)
        else:
            task.is_refused = answer(partial(write, task.memory)) is REFUSED
        self.check(refused=task.is_refused)

    def hear(self, claim: Claim, *, lost: bool) -> None:
        """The process hears what came of the record that it posted; if it is ``lost`` with its connection, it asks
        again."""
        task = self.task_of(claim)
        if task.settle is None:
            return
        if lost and not task.is_refused:
            task.line.close()
        assert (answer(task.settle) is REFUSED) == task.is_refused
        if task.is_refused:
            self._refuse(task)
        else:
            task.settle = None
            self.check(unchanged=not lost)

    def commit(
        self,
        claim: Claim,
        *,
        replayed: int = 0,
        lost: bool = False,
        used: ReadSet = NOTHING,
        process: str = "",
        queue: str = "",
    ) -> None:
        """A commit heard twice is one commit, and learns how the run stands now. A process may continue with what it
        made ready, or with what waits in a queue."""
        job = claim.job
        run = self.runs[job.run_id]
        repeated = job.task in run.branches[job.branch].outputs
        unlocks = branch_plan(run.plan, claim.rerun_mask).dependents[job.task]
        text, before = dump(f"{job.task} by {claim.token}", None), self.world
        self.nonces.next = f"n{next(self.numbers)}"
        how = {"replayed": replayed, "used": used, "ms": 5, "process": process, "queue": queue}
        tokens = self.written.setdefault((job.run_id, job.branch, job.task), set())
        if (
            process
            and len(unlocks) == 1
            and not replayed
            and not self.memory.holds(claim)
            and claim.token not in tokens
        ):
            lost = False  # commit_next is tried first, which says nothing of a refusal among the run's events
        due = self.write(claim, lambda task: task.commit(text, unlocks, **how), lost=lost)
        if due is not REFUSED:
            self._continues(claim, repeated)
            assert not repeated or self.world.values() == before.values()
            task = self.task_of(claim)
            assert task.redis.end_events[0] in (0, task.memory.end_events[0])
            tokens.add(claim.token)
            assert tokens == {claim.token}, "committed once"

    def _continues(self, claim: Claim, repeated: bool) -> None:
        found, due = (task.next for task in self.task_of(claim))
        assert (found is None) == (due is None)
        if found is not None and due is not None:
            assert comparable(found) == comparable(due), "the same claim, with all that is needed to do the task"
            if not repeated:
                self.claims.append(found)

    def ask(self, claim: Claim, step: str, *, replayed: int, lost: bool) -> None:
        question = json.dumps({"message": f"{step}?"})
        self.write(claim, lambda task: task.ask(step, question, replayed=replayed), again=REFUSED, lost=lost)

    def release(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        how = {"replayed": replayed, "max_handovers": MOST_HANDOVERS}
        self.write(claim, lambda task: task.release(**how), again=REFUSED, lost=lost)

    def retry(self, claim: Claim, delay: int, *, replayed: int, lost: bool) -> None:
        how = {"replayed": replayed, "trace": "where"}
        self.write(claim, lambda task: task.retry(delay / 1000, "it raised", **how), again=REFUSED, lost=lost)

    def fail(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        self.write(claim, lambda task: task.fail("no way", replayed=replayed), again=REFUSED, lost=lost)
