"""Redis behind the engine's `Store` port: claims, and the writes that a claim allows, on a connection of their own.

What a task writes before its end is in `claimed_steps.py` and `run_events.py`.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from json.encoder import encode_basestring
from typing import Any, Unpack

from runner.core.errors import one_line
from runner.core.jobs import ANY, Claim, Job, Needed, Refusal, Scope
from runner.core.ledger import Counters, counters_text
from runner.core.made_once import early_names
from runner.core.output import TaskOutput, pack_output
from runner.core.plan import PlannedTask
from runner.core.plan.dependencies import NOTHING
from runner.core.plan.expansion import Expansion
from runner.core.redaction import redact
from runner.core.settings import MAX_HANDOVERS
from runner.core.stored_output import unpack_output
from runner.journal.acknowledged_writes import Log
from runner.providers.records import Ending
from runner.providers.redis import keys, scripts
from runner.providers.redis.address import identity
from runner.providers.redis.connection import Client, patient
from runner.providers.redis.dynamic_plan import GrowingBranch
from runner.providers.redis.envelope import JOB, Message, read_message
from runner.providers.redis.pipelined import PipelinedConnection, Replicas
from runner.providers.redis.rate_limit import RunPace
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.run_events import RunEvents
from runner.providers.redis.runs import Runs
from runner.providers.redis.scripts import (
    Executor,
    PackedScript,
    context_text,
    milliseconds,
    specifications,
    stamp,
)
from runner.providers.redis.workers import Workers

log = logging.getLogger(__name__)


class RedisStore:
    """A `runner.engine.ports.Store`. ``name`` is that of its connections.

    For one caller at a time, as its line is, unless it is ``shared`` by many tasks.
    """

    def __init__(self, url: str, *, name: str, replicas: Replicas, shared: bool = False) -> None:
        self.id = identity(url)
        self._client = patient(url, name=name)
        self._line: PipelinedConnection
        if shared:
            from runner.providers.redis.shared_connection import SharedConnection

            self._line = SharedConnection(self._client, replicas)
        else:
            self._line = PipelinedConnection(self._client, replicas)
        self._runs = runs = Runs(self._client)
        self.plan, self.files_left, self.parent, self.existing = runs.plan, runs.files_left, runs.parent, runs.existing
        self.code, self.bundle, self.drop_bundle = runs.code, runs.bundle, runs.drop_bundle
        self.workers = Workers(self._client)

    def claim(
        self, job: Job, *, worker: str, process: str, unfit: Iterable[str], environments: str = ANY
    ) -> Claim | Refusal:
        """Take the job's task if it is free: one round trip."""
        return claim(self._line, job, worker=worker, process=process, unfit=unfit, environments=environments)

    def take(self, queue: str) -> Message | None:
        """Take the oldest message of a queue that scripts push to; None for none, and where the store is away.

        One whose answer is lost is sent again, as one that is lost on the way through Celery. One that is not a job's
        stays where it is, for Celery, which says so.
        """
        text = self._line.ask_for(partial(scripts.load("take"), queue=queue, job=f'"{JOB}"'))
        if text is None:
            return None
        try:
            return read_message(text)
        except ValueError as error:
            log.error("a message in queue %s is not a job's; dropping it: %s", queue, one_line(error))
            return None

    def return_job(self, job: Job) -> None:
        """Send a received job on, unclaimed."""
        return_job(self._line, job)

    def task(self, claim: Claim, sent: Callable[[str], None] | None, log: Log | None) -> "ClaimedTask":
        """Return the task that a claim holds, for its writes."""
        return ClaimedTask(self._line.side(), claim, sent, log)

    def branch(self, run_id: str, branch: str) -> GrowingBranch:
        """Return a branch, for reading."""
        return GrowingBranch(self._client, run_id, branch)

    def pacer(self, run_id: str) -> RunPace:
        """Counts the run's calls of models."""
        return RunPace(self._client, run_id)

    def signature(self, run_id: str) -> str:
        """Return the signature of the run's code; "" for none."""
        return self._runs.field(run_id, "signature")

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are committed on the branch."""
        found = self._runs.outputs_of(run_id, branch, keys)
        return {key: output.as_task_output(key) for key, output in found.items()}


@early_names("_begin", "_append", "_me", "_said", "_sent", "_is_awaited", "end_events", "next")
class ClaimedTask(RunEvents):
    """The writes that a claim allows. Each shows the token; `ClaimLost` if it no longer holds.

    ``end_events`` are the sequences of the events that ended the task and, with it, its branch; 0 where it did not.
    ``next`` is what its commit claimed for a process that continues.
    """

    end_events = (0, 0)
    next: Claim | None = None

    def commit(self, output: str, unlocks: Iterable[PlannedTask], **how: Unpack[Ending]) -> str:
        """End the task with its output, a JSON object. Returns the branch's status after it."""
        unlocks, nonce = tuple(unlocks), _nonce(how)
        with self._lock:
            self._note_open_again()  # once: where the first script's answer is lost, it has ended the claim
            if nonce and len(unlocks) == 1 and not how["replayed"] and self._commit_next(output, *unlocks, how, nonce):
                return "running"
        return self._commit(output, specifications(unlocks), "", how, nonce)

    def expand(self, expansion: Expansion, version: str, **how: Unpack[Ending]) -> bool:
        """End a task of a plan that grows. False if the shared texts are of another version: nothing was done."""
        expanded = {"version": version, "put": expansion.put, "gone": expansion.gone, "notes": expansion.notes}
        ready = specifications(expansion.ready, needs=1)
        text = json.dumps(expanded, ensure_ascii=False)
        with self._lock:
            self._note_open_again()
        return self._commit(expansion.output, ready, text, how, _nonce(how)) != "changed"

    def _commit_next(self, output: str, following: PlannedTask, how: Ending, nonce: str) -> bool:
        """End the task, and have the one after it claimed. False if more comes of it: nothing was done."""
        if len(following.after) != 1 or following.context not in (None, (), following.after):
            return False
        with self._lock:
            if self._unsent is not None:
                self._send_events()
            if self._sent is not None and self._sent.sequence is None:
                return False
            claim, log = self._claim, self._log
            script, place = scripts.load("commit_next"), (self._line.home, self._run, claim.job.branch)
            answer = _packed(script, *place, claim.worker, how["process"])(
                self._line,
                claim.job.task,
                claim.token,
                claim.scope.branch,
                *_written(output, claim.job.task, how),
                following.key,
                context_text(following),
                milliseconds(following.timeout) if following.timeout else 0,
                following.pool,
                log.count if log is not None else 0,
                nonce,
                stamp(),
            )
            if answer[0] != "committed":
                return False
            self._sure()
            self._line.replicated()
        if log is not None:
            log.ended("commit")
        self.end_events = (answer[1], 0)
        self.next = claimed_next(claim, answer, following.key)
        return True

    def _commit(self, output: str, ready: str, expansion: str, how: Ending, nonce: str) -> str:
        with self._lock:
            if self._unsent is not None:
                self._send_events()
            sent = self._sent
        rest, log_entry = _written(output, self._claim.job.task, how)
        slots = {
            "home": self._line.home,
            "run": self._run,
            "branch": self._branch,
            "task": self._task,
            "journal": keys.key("journal_key", branch_key=self._branch, name=self._claim.job.task),
            "outputs": keys.key("outputs_key", branch_key=self._branch),
            "worker": self._claim.worker,
            "output": rest,
            "log_entry": log_entry,
            "replayed": counters_text(how["replayed"]),
            "next": ready,
            "expansion": expansion,
            "stamp": stamp(),
            "process": how.get("process", ""),
            "queue": how.get("queue", ""),
            "like": self._claim.like,
            "nonce": nonce,
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
            given = answer[5]
            self.next = claimed_like(self._claim, given) if given[0] == "like" else claimed(self._claim.worker, given)
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


@lru_cache(maxsize=64)  # one for all tasks of a branch that a process does
def _packed(script: scripts.LuaScript, *first: str) -> PackedScript:
    return PackedScript(script, *first)


def _nonce(how: Ending) -> str:
    """One for an end whose process continues: a claim that came with an answer which was lost is asked for again."""
    return os.urandom(8).hex() if how.get("process") else ""


def _written(output: str, task: str, how: Ending) -> tuple[bytes, str]:
    """A task's output, and its entry in the commit log, as the scripts take them."""
    ms, used = how.get("ms"), how.get("used", NOTHING)
    rest = pack_output(output[1:] if ms is None else f'"ms":{ms},{output[1:]}')
    return rest, f",{encode_basestring(task)}{used.to_json()}]"


def claim(
    line: PipelinedConnection,
    job: Job,
    *,
    worker: str,
    process: str,
    unfit: Iterable[str] = (),
    environments: str = ANY,
) -> Claim | Refusal:
    """Take the task if it is free, see `runner.engine.ports.Store.claim`. Waits for Redis; one round trip."""
    home = line.home
    branch = keys.branch_key(job.run_id, job.branch, home)
    answer = scripts.load("claim")(
        line,
        home=home,
        run=keys.run_key(job.run_id, home),
        task=keys.key("task_key", branch_key=branch, name=job.task),
        name=job.branch,
        key=job.task,
        attempt=job.attempt,
        worker=worker,
        process=process,
        nonce=os.urandom(8).hex(),
        stamp=stamp(),
        unfit="".join(f",{adapter}," for adapter in unfit),
        environments=environments,
    )
    if answer[0] == "environment":
        return Refusal(answer[0], Needed(*answer[1].split(" ", 1), *answer[2:]))
    return claimed(worker, answer, job) if answer[0] == "claimed" else Refusal(answer[0])


def return_job(line: Executor, job: Job) -> None:
    """Send a received job on, unclaimed, for another worker to take."""
    scripts.load("return_job").at(line, job.run_id, job.branch, job.task, attempt=job.attempt)


def hold(client: Client, claims: Sequence[Claim]) -> list[bool]:
    """Which of these claims still hold. Asked beside their tasks' own lines, while the tasks may be using those."""
    home = keys.home_of(client)
    asked, wanted = client.pipeline(transaction=False), [str(claim.token) for claim in claims]
    for claim in claims:
        branch = keys.branch_key(claim.job.run_id, claim.job.branch, home)
        asked.hget(keys.key("task_key", branch_key=branch, name=claim.job.task), "token")
    return [found == token for found, token in zip(asked.execute(), wanted, strict=True)]


def mark(client: Client, job: Job, trigger: str) -> None:
    """Write a checkpoint of the branch that the task is on, if its run asked for one at this trigger."""
    scripts.load("mark").at(client, job.run_id, job.branch, key=job.task, trigger=trigger)


# -- what scripts return of a claim


def claimed(worker: str, given: list[Any], job: Job | None = None) -> Claim:
    """The claim that a script gave, as ``claim.lua`` says; without a ``job`` it names that itself (``commit.lua``)."""
    _, token, failures, failed, bundle, module, attr, adapter, inputs, plan_digest, crew, standin = given[:12]
    of_branch, of_task, of_claim, first, triggers, agent, opens, rerun_mask, changed, like, many = given[12:23]
    at = 23
    if job is None:
        task, attempt, run_id, branch = given[23:27]
        job, at = Job(run_id, branch, task, attempt), 27
    context, recorded = given[at : at + many], given[at + many :]
    return Claim(
        job=job,
        worker=worker,
        token=token,
        failures=failures,
        failed=failed,
        bundle=bundle,
        module=module,
        attr=attr,
        adapter=adapter,
        inputs=_inputs(inputs, changed),
        rerun_mask=rerun_mask,
        plan_digest=plan_digest,
        crew=crew,
        standin=standin,
        scope=Scope(of_branch, of_task, of_claim, bool(first), _triggers(triggers), agent, bool(opens)),
        context={key: unpack_output(value) for key, value in _pairs(context) if value} if context else {},
        recorded=dict(_pairs(recorded)) if recorded else {},
        stored_inputs=(inputs, changed),
        like=like,
    )


def claimed_like(claim: Claim, given: list[Any]) -> Claim:
    """The first claim on a run that is like another one's at its first, of which ``commit.lua`` gave what is new."""
    _, token, run_id, inputs = given
    return claim._replace(
        job=Job(run_id, claim.job.branch, claim.job.task, 1),
        token=token,
        inputs=_inputs(inputs, ""),
        recorded={},
        context={},
        stored_inputs=(inputs, ""),
    )


def claimed_next(claim: Claim, given: list[Any], task: str) -> Claim:
    """The claim on the next task of a claim's branch, of which ``commit_next.lua`` gave what is new."""
    _, _, token, started, first, opens, *context = given
    job, scope = claim.job, claim.scope
    return Claim(
        Job(job.run_id, job.branch, task, 1),
        claim.worker,
        token,
        0,
        0,
        claim.adapter,
        _inputs(*claim.stored_inputs),  # what the code of a task does to its own is not seen by the next
        claim.rerun_mask,
        claim.plan_digest,
        claim.crew,
        Scope(scope.branch, started, started, bool(first), scope.triggers, 0, bool(opens)),
        {},
        {job.task: unpack_output(context[0])} if context else {},
        claim.bundle,
        claim.module,
        claim.attr,
        claim.standin,
        claim.stored_inputs,
    )


def _inputs(of_run: str, of_branch: str) -> dict[str, Any]:
    """The inputs of a task: the run's, and those that differ on its branch."""
    return ({} if of_run == "{}" else json.loads(of_run)) | (json.loads(of_branch) if of_branch else {})


@lru_cache(maxsize=256)  # one for all tasks that wait
def _triggers(names: str) -> frozenset[str]:
    return frozenset(filter(None, names.split(",")))


def _pairs(flat: Any) -> Iterable[tuple[str, str]]:
    """Return a flat reply as pairs."""
    return zip(flat[::2], flat[1::2], strict=True)
