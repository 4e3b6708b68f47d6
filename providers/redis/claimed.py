"""What a worker writes while it holds a task: its steps and events, then its output, or that it gives the task back."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, Job
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, counters_text, text_of_one
from runner.core.output import pack_output
from runner.core.plan import PlannedTask
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.core.plan.expansion import Expansion
from runner.core.redaction import redact
from runner.core.settings import MAX_HANDOVERS
from runner.journal.task_marks import Log, SentCalls
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import PipelinedConnection
from runner.providers.redis.patience import outage, quiet_watch
from runner.providers.redis.scripts import claimed, flat, milliseconds, specification, specifications, stamp

if TYPE_CHECKING:
    from runner.providers.redis.shared_connection import ConnectionSide

AWAY = 0.02  #: seconds without a word of the store after which a step begins only when that has its note


class ClaimedTask:
    """The writes that a claim allows. Each shows the token; `ClaimLost` if it no longer holds.

    ``outgoing`` is told which calls have left: what it knows of a task whose process died, `reap` is told.
    ``log`` is told what the store acknowledged: what it knows and the store forgot, `LookBack` counts.
    ``told`` are the sequences of the event that ended the task and, where its branch ended with it, of that; else 0.
    ``next`` is what its commit claimed for a process that continues.
    """

    def __init__(
        self,
        line: "PipelinedConnection | ConnectionSide",
        claim: Claim,
        outgoing: Callable[[str], None] | None = None,
        log: Log | None = None,
    ) -> None:
        self._line = line
        self._claim = claim
        job = claim.job
        self._home = keys.home_of(job.run_id)
        self._run = keys.run_key(job.run_id)
        self._branch = keys.branch_key(job.run_id, job.branch)
        self._task = keys.key("task_key", branch_key=self._branch, name=job.task)
        self._journal = keys.key("journal_key", branch_key=self._branch, name=job.task)
        self._outputs = keys.key("outputs_key", branch_key=self._branch)
        self._who = {"name": job.branch, "key": job.task, "token": claim.token}
        self._record = scripts.load("record_step")
        self._begin = scripts.load("begin_step")
        self._reached = 0  # records that this attempt replayed or made: its progress
        self._open = Counters()  # the steps that are begun, and neither recorded nor dropped
        self._out = SentCalls(claim.token, outgoing)
        self._log = log.claim if log is not None else None
        self._noted = False
        self._soon = False  # the last step began as soon as the store had been heard
        # Whether a note is reserved for the next step: the store has one step more than are begun. False: that began.
        self._reserved: bool | None = None
        self._between: tuple[AccountKey | None, int] = (
            None,
            0,
        )  # the step that is just being noted (-1) or recorded (+1)
        line.missed = self._missed
        self._me, self._said = os.urandom(4).hex(), itertools.count()
        self._heard = time.monotonic()  # when the store last said that the claim holds
        self._lock = line.lock  # a task may have threads
        self.told = (0, 0)
        self.next: Claim | None = None

    can_wait = True

    def place(self, step: str) -> str:
        """The journal is its own: the step's name."""
        return step

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Note that a step begins: one that runs without a note could not be counted as in doubt.

        A call of a model, or a tool, begins when the store has the note. A step costs no round trip: nothing waits for
        the answer, where the store was heard a moment ago. Else the process may have been frozen, and its claim lost,
        or the store may refuse for now. A step for which the last record reserved a note sends none.
        Raises `ClaimLost`.
        """
        with self._lock:
            self._open.subtract(supersedes)
            self._open[entry] += 1
            if not intent_only:
                self._out.count(entry, 1)
            self._soon = not self._quiet() and not outage.is_on
            if self._reserved and self._soon and entry == STEP:
                self._reserved = False
                self._out.unnoted(self._open)
                return
            if entry.kind != "step" or not self._soon:
                self._between = (entry, -1)
                self._note_surely()
                self._between = (None, 0)
            else:
                self._note_open(text_of_one(entry))
            if self._log is not None:  # the note is on its way: what is remembered of it is looked for
                self._log.began(self._open.text())

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        with self._lock:
            self._out.count(entry, 1)

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters | int,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        told: bool = False,
    ) -> None:
        """Record a step's result: one round trip.

        Where steps follow each other closely, its note becomes that of the next one, which then needs no word. If that
        does not come soon, the note is withdrawn. A process that dies meanwhile has said whether it came.
        """
        with self._lock:
            reserved = entry == STEP and self._soon and self._out.is_read and self._open[STEP] > 0
            begun = self._open.text() if reserved else ""
            if entry is not None:
                self._open[entry] = max(self._open[entry] - 1, 0)
                self._between = (entry, 1)
            begun = begun or self._open.text()
            about: dict[str, Any] = {}
            if entry is not None and entry.kind == "model" and not told:
                about = {"model": entry.model, "agent": entry.agent, **usage.told()}
            details = usage.details if usage is not NO_TOKENS else ()
            self._reached += 1 + (replayed.passed if isinstance(replayed, Counters) else replayed)
            self._fenced(
                self._record,
                run=self._run,
                task=self._task,
                journal=self._journal,
                step=step,
                value=value,
                begun=begun,
                reserved="1" if reserved else "",
                paid=text_of_one(entry) if entry is not None else "",
                replayed=counters_text(replayed),
                reached=self._reached,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                details=json.dumps(details) if details else "",
                told=flat(about) if about else "",
            )
            if self._log is not None:
                self._log.recorded(step, text_of_one(entry) if entry is not None else "", begun)
            if entry is not None:
                self._between = (None, 0)
                self._out.count(entry, -1)
            self._reserve(True if reserved else None)

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """A begun step raised: it is not in doubt."""
        with self._lock:
            if not intent_only:
                self._out.count(entry, -1)
            self._open[entry] = max(self._open[entry] - 1, 0)
            if self._reserved is False and entry == STEP:  # the note is there for the next one
                self._reserve(True)
                return
            if self._log is not None:
                self._log.began(self._open.text())
            self._note_open()

    def _quiet(self) -> bool:
        """Whether the store has not been heard for a moment."""
        return time.monotonic() - self._heard > AWAY

    def _reserve(self, reserved: bool | None) -> None:
        if self._reserved is False:
            self._out.unnoted(None)
        self._reserved = reserved
        if reserved:
            quiet_watch(self._withdraw, AWAY)

    def _withdraw(self) -> bool:
        """Withdraw the note that is reserved, if its step did not come soon. Returns whether that is settled."""
        with self._lock:
            if not self._reserved:
                return True
            if not self._quiet():
                return False
            if not self._line.reconnected:
                self._note_open()
                if self._log is not None:
                    self._log.began(self._open.text())
            return True

    def _note_open(self, new: str = "") -> None:
        """Say which steps are begun. Said in whole each time, it may get lost with a connection, and be said again.

        The ``new`` ones are done without waiting for the answer: they count also if the claim is lost by now.
        """
        if self._line.reconnected:
            self._line.execute_command("SCRIPT", "LOAD", self._begin.text)
            self._line.reconnected = False
        self._line.send_nowait("EVALSHA", self._begin.sha, *self._begin.arguments(self._begun(new)))
        self._noted = True
        self._reserve(None)

    def _begun(self, new: str = "") -> dict[str, Any]:
        begun = self._open.text()
        return {"run": self._run, "task": self._task, **self._who, "begun": begun, "new": new}

    def _note_open_again(self) -> None:
        """Before the end of the task: where a note was refused, or lost with its connection, or reserved and used."""
        if self._reserved is False:
            self._note_surely()
        elif self._reserved and self._log is not None:
            self._log.began(self._open.text())
        self._reserve(None)
        if self._noted:
            self._line.settle()
            if self._line.reconnected:
                self._note_surely()

    def _note_surely(self) -> None:
        """Say it, and wait for the answer. Raises `ClaimLost`."""
        try:
            self._held(self._begin, **self._begun())
        except ClaimLost:
            self._reserve(None)
            raise
        self._noted, self._line.reconnected = True, False
        self._reserve(None)

    def _missed(self) -> None:
        """The store takes nothing now, and may not have taken a note either: who looks after us is told, if we die."""
        begun = Counters(self._open)
        entry, many = self._between
        if entry is not None:
            begun[entry] += many
        self._out.unsure(begun)

    def note(self, kind: str, text: str) -> None:
        """Put a line among the run's events."""
        slots = {
            "run": self._run,
            "task": self._task,
            **self._who,
            "kind": kind,
            "text": redact(text),
            "nonce": self._nonce(),
        }
        self._held(scripts.load("note"), **slots)

    def tell(
        self,
        kind: str,
        about: str,
        *,
        more: Mapping[str, Any] | None = None,
        parent: int = 0,
        started: int = 0,
        cause: int = 0,
        ends: str = "",
        trigger: str = "",
    ) -> int:
        """Put an event of the task's code among the run's: see ``tell.lua``. Returns its sequence."""
        return self._held(
            scripts.load("tell"),
            run=self._run,
            branch=self._branch,
            task=self._task,
            **self._who,
            kind=kind,
            about=about,
            more=flat(more or {}),
            parent=parent,
            started=started,
            cause=cause,
            ends=ends,
            trigger=trigger,
            stamp=stamp(),
            nonce=self._nonce(),
        )

    def _nonce(self) -> str:
        return f"{self._me}.{next(self._said)}"

    def _held(self, script: scripts.LuaScript, **slots: Any) -> int:
        with self._lock:
            answer = int(script(self._line, **slots))
        if not answer:
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost")
        self._sure()
        return answer

    def commit(
        self,
        output: str,
        unlocks: Iterable[PlannedTask],
        *,
        replayed: Counters | int,
        used: ReadSet = NOTHING,
        ms: int | None = None,
        process: str = "",
    ) -> str:
        """End the task with its output, a JSON object. Returns the branch's status after it."""
        ready = specifications(unlocks)
        return self._commit(output, ready, "", replayed=replayed, used=used, ms=ms, process=process)

    def expand(
        self,
        expansion: Expansion,
        version: str,
        *,
        replayed: Counters | int,
        used: ReadSet = NOTHING,
        ms: int | None = None,
        process: str = "",
    ) -> bool:
        """End a task of a plan that grows. False if the shared texts are of another version: nothing was done."""
        expanded = {"version": version, "put": expansion.put, "gone": expansion.gone, "notes": expansion.notes}
        ready = json.dumps([specification(task, 1) for task in expansion.ready], ensure_ascii=False)
        text = json.dumps(expanded, ensure_ascii=False)
        answer = self._commit(expansion.output, ready, text, replayed=replayed, used=used, ms=ms, process=process)
        return answer != "changed"

    def _commit(
        self,
        output: str,
        ready: str,
        expansion: str,
        *,
        replayed: Counters | int,
        used: ReadSet,
        ms: int | None,
        process: str,
    ) -> str:
        with self._lock:
            self._note_open_again()
        answer = self._fenced(
            scripts.load("commit"),
            home=self._home,
            run=self._run,
            branch=self._branch,
            task=self._task,
            journal=self._journal,
            outputs=self._outputs,
            worker=self._claim.worker,
            output=pack_output(output[1:] if ms is None else f'"ms":{ms},{output[1:]}'),
            log_entry=f",{encode_basestring(self._claim.job.task)}{used.to_json()}]",
            replayed=counters_text(replayed),
            next=ready,
            expansion=expansion,
            stamp=stamp(),
            process=process,
            nonce=os.urandom(16).hex() if process else "",
        )
        if answer[0] == "changed":
            return "changed"
        with self._lock:
            self._line.replicated()
        if self._log is not None:
            self._log.ended("commit")
        if len(answer) > 3:
            self.told = (answer[3], answer[4])
        if len(answer) > 5:
            task, attempt, given = answer[5]
            job = Job(self._claim.job.run_id, self._claim.job.branch, task, attempt)
            self.next = claimed(job, self._claim.worker, given)
        return str(answer[2])

    def ask(self, step: str, question: str, *, replayed: Counters | int) -> None:
        """Hand the task back until a person has answered; ``step`` of its journal is where the answer belongs."""
        self._give(
            "ask",
            branch=self._branch,
            journal=self._journal,
            step=step,
            question=question,
            replayed=replayed,
            stamp=stamp(),
        )

    def release(self, *, replayed: Counters | int, max_handovers: int = MAX_HANDOVERS) -> None:
        """Hand the task back, to run elsewhere at once. After ``max_handovers`` without progress it fails instead."""
        self._give("release", replayed=replayed, max_handovers=max_handovers, stamp=stamp())

    def retry(self, delay: float, reason: str, *, replayed: Counters | int, trace: str = "") -> None:
        """Hand the task back, to run again after ``delay`` seconds."""
        about = {"reason": redact(reason), "trace": trace}
        self._give("retry", replayed=replayed, delay_ms=milliseconds(delay), **about)

    def fail(self, reason: str, *, replayed: Counters | int, trace: str = "") -> None:
        """Fail the task for good, and with it the branch."""
        about = {"reason": redact(reason), "trace": trace}
        answer = self._give("fail", replayed=replayed, **about, branch=self._branch, stamp=stamp())
        self.told = (answer[1], answer[2])

    def _give(self, operation: str, **slots: Any) -> Any:
        script = scripts.load(operation)
        slots["replayed"] = counters_text(slots["replayed"])
        with self._lock:
            self._note_open_again()
        answer = self._fenced(
            script, home=self._home, run=self._run, task=self._task, worker=self._claim.worker, **slots
        )
        if self._log is not None:
            self._log.ended(operation)
        return answer

    def _sure(self) -> None:
        """The store has all that it was told."""
        self._heard = time.monotonic()
        self._out.sure()

    def _fenced(self, script: scripts.LuaScript, **slots: Any) -> Any:
        """Run a script that checks the fencing token. Raises `ClaimLost`."""
        with self._lock:
            answer = script(self._line, **self._who, **slots)
        if answer[0] == "refused":
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost: token {self._claim.token} no longer holds")
        self._sure()
        return answer
