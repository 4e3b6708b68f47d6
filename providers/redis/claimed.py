"""The end of a task that a worker holds: a commit or a release. What comes before are its steps and its events."""

import json
import os
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from runner.core.jobs import Claim, within_tasks
from runner.core.ledger import Counters, counters_text
from runner.core.made_once import early_names
from runner.core.output import pack_output
from runner.core.plan import PlannedTask
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.core.plan.expansion import Expansion
from runner.core.redaction import redact
from runner.core.settings import MAX_HANDOVERS
from runner.journal.acknowledged_writes import Log
from runner.providers.redis import keys, scripts
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.run_events import RunEvents
from runner.providers.redis.scripts import claimed, milliseconds, specifications, stamp

if TYPE_CHECKING:
    from runner.providers.redis.shared_connection import ConnectionSide


@early_names("_begin", "_append", "_me", "_said", "_sent", "_is_awaited")
class ClaimedTask(RunEvents):
    """The writes that a claim allows. Each shows the token; `ClaimLost` if it no longer holds.

    ``end_events`` are the sequences of the events that ended the task and, with it, its branch; 0 where it did not.
    ``next`` is what its commit claimed for a process that continues.
    """

    def __init__(
        self,
        line: "PipelinedConnection | ConnectionSide",
        claim: Claim,
        outgoing: Callable[[str], None] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(line, claim, outgoing, log)
        self.end_events = (0, 0)
        self.next: Claim | None = None
        if within_tasks(claim.scope.triggers):
            self._unnumbered = list(claim.recorded)

    def commit(
        self,
        output: str,
        unlocks: Iterable[PlannedTask],
        *,
        replayed: Counters | int,
        used: ReadSet = NOTHING,
        ms: int | None = None,
        process: str = "",
        queue: str = "",
    ) -> str:
        """End the task with its output, a JSON object. Returns the branch's status after it."""
        ready = specifications(unlocks)
        return self._commit(output, ready, "", replayed=replayed, used=used, ms=ms, process=process, queue=queue)

    def expand(
        self,
        expansion: Expansion,
        version: str,
        *,
        replayed: Counters | int,
        used: ReadSet = NOTHING,
        ms: int | None = None,
        process: str = "",
        queue: str = "",
    ) -> bool:
        """End a task of a plan that grows. False if the shared texts are of another version: nothing was done."""
        expanded = {"version": version, "put": expansion.put, "gone": expansion.gone, "notes": expansion.notes}
        ready = specifications(expansion.ready, needs=1)
        text = json.dumps(expanded, ensure_ascii=False)
        how: dict[str, Any] = {"replayed": replayed, "used": used, "ms": ms, "process": process, "queue": queue}
        answer = self._commit(expansion.output, ready, text, **how)
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
        queue: str,
    ) -> str:
        with self._lock:
            self._note_open_again()
            if self._unsent is not None:
                self._send_events()
            sent = self._sent
        slots = {
            "home": self._line.home,
            "run": self._run,
            "branch": self._branch,
            "task": self._task,
            "journal": keys.key("journal_key", branch_key=self._branch, name=self._claim.job.task),
            "outputs": keys.key("outputs_key", branch_key=self._branch),
            "worker": self._claim.worker,
            "output": pack_output(output[1:] if ms is None else f'"ms":{ms},{output[1:]}'),
            "log_entry": f",{encode_basestring(self._claim.job.task)}{used.to_json()}]",
            "replayed": counters_text(replayed),
            "next": ready,
            "expansion": expansion,
            "stamp": stamp(),
            "process": process,
            "queue": queue,
            "nonce": os.urandom(8).hex() if process else "",
            "recorded": self._log.count if self._log is not None else 0,
            "events": [] if sent is None or sent.sequence is not None else [sent.nonce],
        }
        while (answer := self._fenced(scripts.load("commit"), **slots))[0] in ("rewound", "untold"):
            if answer[0] == "untold":
                with self._lock:
                    self._confirm_events()
                slots["events"] = []
            elif not self._find_lost_writes():
                slots["recorded"] = 0  # what is missing is not remembered any more
        if answer[0] == "changed":
            return "changed"
        with self._lock:
            self._line.replicated()
        if self._log is not None:
            self._log.ended("commit")
        if len(answer) > 3:
            self.end_events = (answer[3], answer[4])
        if len(answer) > 5:
            self.next = claimed(self._claim.worker, answer[5])
        return str(answer[2])

    def _find_lost_writes(self) -> bool:
        """Have counted what the store forgot of this claim, while its journal is there. Returns whether any was."""
        assert self._log is not None
        slots = LostWrites(self._claim.worker).slots(self._log.acknowledged(), home=self._line.home)
        with self._lock:
            verdict, *_ = scripts.load("find_lost_writes")(self._line, **slots)
        return str(verdict) == "forgotten"

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
        self.end_events = (answer[1], answer[2])

    def _give(self, operation: str, **slots: Any) -> Any:
        script = scripts.load(operation)
        slots["replayed"] = counters_text(slots["replayed"])
        with self._lock:
            self._note_open_again()
            self._confirm_events()
        answer = self._fenced(
            script, home=self._line.home, run=self._run, task=self._task, worker=self._claim.worker, **slots
        )
        if self._log is not None:
            self._log.ended(operation)
        return answer
