"""The verbs: submit a crew, watch a run, let it go on, cancel it."""

import hashlib
import io
import json
import os
import secrets
import socket
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from runner import adapters, bundle, crashpoints, loader, local_worker, settings
from runner.adapters import Adapter
from runner.bundle import Bundle
from runner.config import CheckpointConfig
from runner.errors import BadCrew, BadInput, Conflict, Exit, MissingDependency, UsageError
from runner.inprocess import refuse_missing, write_file
from runner.plan import Plan
from runner.providers.redis.connection import NOT_NOW
from runner.providers.redis.envelope import template
from runner.providers.redis.runs import CheckpointRecord, Event, RunRecord, Runs
from runner.states import RunStatus
from runner.store import Store, open_store
from runner.target import Target, parse_target

KEEP = 7 * 24 * 3600.0
EXIT_OF = {
    RunStatus.completed: Exit.COMPLETED,
    RunStatus.failed: Exit.FAILED,
    RunStatus.cancelled: Exit.CANCELLED,
    RunStatus.waiting: Exit.WAITING,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crew that was loaded, planned and packed: it can be run. Nothing is stored yet."""

    target: Target
    attr: str
    plan: Plan
    packed: Bundle
    checkpoints: CheckpointConfig | None
    output_files: dict[str, str]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to. ``outputs`` are texts by task; ``ledger`` is the account of its steps."""

    run_id: str
    status: str
    branch: str
    result: str | None
    outputs: dict[str, str]
    ledger: dict[str, int]
    recoveries: int
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def exit_code(self) -> Exit:
        """The exit code that says the same."""
        return EXIT_OF.get(RunStatus(self.status), Exit.COMPLETED)


@dataclass
class RunHandle:
    """One run, to watch and to steer."""

    client: "Client"
    id: str
    created: bool = True
    _from: str = field(default="0", repr=False)

    @property
    def record(self) -> RunRecord:
        """The run as it stands now."""
        return self.client.store.runs.get(self.id)

    @property
    def status(self) -> str:
        """Where it stands: running, completed, failed, cancelled or waiting."""
        return self.record.status.value

    def events(self, follow: bool = False, after: str | None = None) -> Iterator[Event]:
        """What happened so far; with ``follow``, on until the run is over."""
        runs = self.client.store.runs
        last = self._from if after is None else after
        if not follow:
            yield from runs.events(self.id, last)
            return
        while True:
            over = self.client.patient(lambda: runs.get(self.id), self).status.over
            found = self.client.patient(lambda: list(runs.events(self.id, last, None if over else 500)), self)  # noqa: B023
            for event in found:
                last = event.id
                yield event
            if over and not found:
                return

    def wait(self, timeout: float | None = None, on_event: Callable[[Event], None] | None = None) -> RunResult:
        """Until the run is over. Raises TimeoutError after ``timeout`` seconds; the run goes on."""
        end = None if timeout is None else time.monotonic() + timeout
        runs = self.client.store.runs
        last = self._from
        while True:
            over = self.client.patient(lambda: runs.get(self.id), self).status.over
            for event in self.client.patient(lambda: list(runs.events(self.id, last, None if over else 500)), self):  # noqa: B023
                last = event.id
                if on_event is not None:
                    on_event(event)
            if over:
                return self.result()
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"run {self.id} is still running after {timeout:g} s")

    def result(self) -> RunResult:
        """What the run came to, or has so far."""
        result: RunResult = self.client.patient(lambda: _result(self.client.store.runs, self.id), self)
        return result

    def write_output_files(self, folder: Path | None = None) -> list[Path]:
        """Write the outputs that tasks want in files, relative to ``folder`` (the working directory)."""
        runs = self.client.store.runs
        wanted = json.loads(runs.field(self.id, "output_files") or "{}")
        outputs = self.result().outputs
        inputs = self.record.inputs
        return [
            write_file(str((folder or Path()) / name), outputs[task], inputs)
            for task, name in wanted.items()
            if task in outputs
        ]

    def cancel(self, reason: str = "cancelled by a person") -> str:
        """Stop it. Returns the status it had; raises `Conflict` if it was over."""
        was = self.client.store.runs.cancel(self.id, reason)
        if was == "gone":
            self.record  # noqa: B018 - raises NotFound with the hint
        if was not in ("running", "waiting"):
            raise Conflict(f"run {self.id} is {was}: there is nothing to cancel")
        return was


class Client:
    """A store, and what can be done with it. Close it, or use it in a ``with``."""

    def __init__(self, redis_url: str | None = None, *, state_dir: Path | None = None) -> None:
        self.store: Store = open_store(redis_url, state_dir=state_dir)
        self._known_bundles: set[str] = set()
        self._looked_for_worker = 0.0

    def close(self) -> None:
        """Let the store go."""
        self.store.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- submitting

    def submit(
        self,
        target: str | Path | Prepared,
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        max_checkpoints: int | None = None,
        checkpoint_on: list[str] | None = None,
        queue: str | None = None,
        keep: float = KEEP,
    ) -> RunHandle:
        """Accept a run. Once this returned, the run ends or waits for a person.

        ``id`` makes it idempotent: the same id gives the same run. ``keep`` is how many seconds a finished run is kept.
        """
        prepared = target if isinstance(target, Prepared) else prepare(str(target))
        given = dict(inputs or {})
        refuse_missing(prepared.plan, given)
        fields = _fields(prepared, given, max_checkpoints, checkpoint_on, queue or default_queue(), keep)
        run_id = run_id_for(id) if id is not None else "r-" + secrets.token_hex(6)
        answer = self._create(run_id, prepared, fields)
        crashpoints.reached("run created, nothing waited for")
        if answer == "exists":
            self._refuse_other(run_id, id, fields)
        self.ensure_worker(fields["queue"])
        return RunHandle(self, run_id, created=answer == "created")

    def _create(self, run_id: str, prepared: Prepared, fields: dict[str, str]) -> str:
        runs, packed = self.store.runs, prepared.packed
        for _ in range(3):
            if packed.sha256 not in self._known_bundles:
                if not runs.put_bundle(packed.sha256, None):
                    runs.put_bundle(packed.sha256, packed.data)
                self._known_bundles.add(packed.sha256)
            answer = runs.create(run_id, prepared.plan, fields)
            if answer != "no bundle":
                return answer
            self._known_bundles.discard(packed.sha256)
        raise Conflict("the store lost the bundle twice while the run was being created: submit again")

    def _refuse_other(self, run_id: str, id: str | None, fields: dict[str, str]) -> None:
        """The same id may not stand for another crew or other inputs."""
        for name, what in (("crew", "another crew"), ("inputs", "other inputs")):
            if self.store.runs.field(run_id, name) != fields[name]:
                raise Conflict(f"the id {id!r} was used for {what} (run {run_id}): choose another id")

    # -- reading and steering

    def run(self, run_id: str) -> RunHandle:
        """The handle of a run. Raises `NotFound`."""
        self.store.runs.get(run_id)
        return RunHandle(self, run_id)

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """The newest runs, newest first."""
        return self.store.runs.newest(limit)

    def checkpoints(self, run_id: str, branch: str | None = None) -> list[CheckpointRecord]:
        """The checkpoints a run keeps, by branch, oldest first."""
        runs = self.store.runs
        runs.get(run_id)
        return [c for name in runs.branches(run_id) if branch in (None, name) for c in runs.checkpoints(run_id, name)]

    def resume(
        self, run_id: str, *, checkpoint: str | None = None, accept_code_change: bool = False, keep_code: bool = False
    ) -> RunHandle:
        """Let a run go on. From an older checkpoint than the branch's newest it goes on, on a branch of its own."""
        runs = self.store.runs
        for _ in range(20):
            run = runs.get(run_id)
            start = runs.find_checkpoint(run_id, checkpoint) if checkpoint else None
            if run.status is RunStatus.running:
                raise Conflict(f"run {run_id} is running: `runner wait {run_id}` waits for it")
            after = runs.last_event(run_id)
            if start is not None and start.seq >= runs.last_commit(run_id, start.branch):
                branch, start = start.branch, None  # nothing was committed after it: the branch goes on
            elif start is not None:
                branch = f"resume/{start.id}_{secrets.token_hex(3)}"
            else:
                branch = run.branch
            done = runs.committed(run_id, branch if start is None else start.branch, start.seq if start else None)
            if run.status is RunStatus.completed and start is None and len(done) == len(runs.plan(run_id).tasks):
                return RunHandle(self, run_id, created=False)
            fields, plan = self._code_now(run, accept_code_change, keep_code)
            answer = runs.resume(run, branch, start=start, fields=fields, plan=plan)
            if answer == "resumed":
                self.ensure_worker(run.queue)
                return RunHandle(self, run_id, _from=after)
            if answer == "no bundle":
                raise Conflict(f"the code of run {run_id} is no longer in the store: submit the crew again")
        raise Conflict(f"run {run_id} kept changing while it was to be resumed: try again")

    def _code_now(self, run: RunRecord, accept: bool, keep: bool) -> tuple[dict[str, str], Plan | None]:
        """The fields to set where the crew's files have changed since, if that is accepted."""
        path = self.store.runs.field(run.id, "target")
        host, _, target = path.partition(":")
        if keep or (not accept and (host != socket.gethostname() or not Path(target.split("::")[0]).exists())):
            return {}, None
        file, _, attr = target.partition("::")
        if accept:
            prepared = prepare(f"{file}:{attr}" if attr else file)
            if prepared.packed.sha256 == run.bundle:
                return {}, None
            if not self.store.runs.put_bundle(prepared.packed.sha256, None):
                self.store.runs.put_bundle(prepared.packed.sha256, prepared.packed.data)
            return {
                "bundle": prepared.packed.sha256,
                "module": prepared.packed.module,
                "attr": prepared.attr,
                "plan": prepared.plan.digest,
                "result_task": prepared.plan.result,
            }, prepared.plan
        now = bundle.pack(parse_target(file), limit=settings.bundle_limit())
        if code_digest(now) != self.store.runs.field(run.id, "code"):
            raise Conflict(
                f"the code of {file} has changed since run {run.id} was submitted: "
                "--accept-code-change goes on with the new code, --keep-code with the old"
            )
        return {}, None

    # -- keeping things alive

    def ensure_worker(self, queue: str) -> None:
        """With the embedded server: make sure that a worker is there, or comes."""
        if self.store.membership is None:
            return
        if time.monotonic() - self._looked_for_worker > 2.0:
            local_worker.ensure(self.store.state_dir, queue)
            self._looked_for_worker = time.monotonic()

    def patient(self, call: Callable[[], Any], handle: RunHandle) -> Any:
        """``call``, through times in which the store is away; a run that is waited for always has a worker."""
        while True:
            try:
                found = call()
                if self.store.membership is not None and time.monotonic() - self._looked_for_worker > 2.0:
                    self.ensure_worker(self.store.runs.field(handle.id, "queue") or default_queue())
                return found
            except NOT_NOW:
                time.sleep(0.2)
                self.store.tend()


def default_queue() -> str:
    """The queue that jobs go to unless told otherwise."""
    return os.environ.get("RUNNER_QUEUE", settings.DEFAULT_QUEUE)


def run_id_for(id: str) -> str:
    """The run id that an idempotent submission gets."""
    if not id.strip():
        raise UsageError("--id must not be empty")
    return "r-" + hashlib.sha256(id.encode()).hexdigest()[:12]


def prepare(target_text: str, *, limit: int | None = None) -> Prepared:
    """Load, plan and pack a crew, here. Raises `UsageError` with what is wrong; nothing is stored."""
    target = parse_target(target_text)
    try:
        module = loader.load_target(target)
    except MissingDependency as error:
        raise BadCrew(f"{error}: install it where you submit from, too") from None
    attr, crew = loader.find_crew(module, target.attr, adapters.is_crew)
    adapter: Adapter = adapters.required(crew)
    plan = adapter.plan(crew, target.file.parent.name if target.file.stem == "crew" else target.file.stem)
    packed = bundle.pack(target, limit=limit or settings.bundle_limit())
    return Prepared(target, attr, plan, packed, adapter.checkpoints(crew), adapter.output_files(crew))


def code_digest(packed: Bundle) -> str:
    """Tells whether code changed: data beside it may, a run's own log files among them."""
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(packed.data)), mode="r:") as tar:
        for member in tar:
            if member.isfile() and member.name.endswith((".py", ".yaml", ".yml", ".toml")):
                content = tar.extractfile(member)
                digest.update(f"{member.name}\0".encode() + (content.read() if content else b"") + b"\0")
    return digest.hexdigest()


def _fields(
    prepared: Prepared,
    inputs: dict[str, Any],
    max_checkpoints: int | None,
    checkpoint_on: list[str] | None,
    queue: str,
    keep: float,
) -> dict[str, str]:
    try:
        inputs_json = json.dumps(inputs, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the inputs are not JSON: {error}") from None
    config = prepared.checkpoints
    if checkpoint_on or max_checkpoints is not None:
        base = config or CheckpointConfig()
        try:
            config = CheckpointConfig(
                on_events=checkpoint_on or base.on_events,  # type: ignore[arg-type]
                max_checkpoints=max_checkpoints if max_checkpoints is not None else base.max_checkpoints,
            )
        except ValueError as error:
            raise UsageError(
                str(error).splitlines()[2].strip().removeprefix("Value error, ").split(" [type=")[0]
            ) from None
    target = prepared.target
    return {
        "crew": prepared.plan.crew,
        "adapter": "native",
        "bundle": prepared.packed.sha256,
        "code": code_digest(prepared.packed),
        "module": prepared.packed.module,
        "attr": prepared.attr,
        "target": f"{socket.gethostname()}:{target.file.resolve()}" + (f"::{prepared.attr}" if prepared.attr else ""),
        "plan": prepared.plan.digest,
        "result_task": prepared.plan.result,
        "output_files": json.dumps(prepared.output_files),
        "inputs": inputs_json,
        "queue": queue,
        "keep": str(int(keep * 1000)),
        "checkpoint_on": f",{','.join(config.on_events)}," if config else "",
        "max_checkpoints": str(config.max_checkpoints or 0) if config else "0",
        "envelope": "" if os.environ.get("RUNNER_BROKER_URL") else template(queue),
    }


def _result(runs: Runs, run_id: str) -> RunResult:
    run = runs.get(run_id)
    committed = runs.committed(run_id, run.branch)
    final = committed.get(runs.field(run_id, "result_task"))
    return RunResult(
        run_id=run_id,
        status=run.status.value,
        branch=run.branch,
        result=final.raw if final and run.status is RunStatus.completed else None,
        outputs={task: output.raw for task, output in sorted(committed.items(), key=lambda item: item[1].seq)},
        ledger=run.ledger,
        recoveries=run.recoveries,
        error=run.error or None,
    )
