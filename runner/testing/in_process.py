"""Crews done in this process: the fleet's executor on a store in memory, without a socket and without a process.

The crew file is packed, loaded and performed as a worker does it; only who carries messages, and who notices what is
due or lost, is this loop.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runner.bundles import bundle
from runner.bundles.bundle import Bundle
from runner.bundles.target import parse_target
from runner.client.reading.crew import Reading, Request, plan_of
from runner.core.inputs import stored
from runner.core.jobs import Job, Refusal
from runner.core.plan import Plan
from runner.engine.decisions import Decision
from runner.engine.jobs import JobExecutor
from runner.engine.local import LocalStops
from runner.engine.ports import Store
from runner.journal import shared_memory
from runner.journal.imports import ReadCalls
from runner.providers.memory import MemoryStore
from runner.testing.clock import ManualClock

QUEUE = "jobs"
LEASE = 10**9  #: ms: who works here lives as long as this process
KEEP = 7 * 24 * 3600 * 1000  #: ms


class Prepared(NamedTuple):
    """A crew file that was read in this process, as a run stores it."""

    plan: Plan
    bundle: Bundle
    fields: dict[str, str]


def prepare(crew: Path | str, inputs: Mapping[str, Any] | None = None) -> Prepared:
    """Read a crew file in this process, and pack its bundle."""
    target = parse_target(str(crew))
    request, calls = Request.of(target, inputs or {}), ReadCalls(target.root)
    reading, packed = Reading(request, calls), bundle.pack(target)
    found = reading.found()
    packed, _ = bundle.with_calls(packed, calls.records)
    plan, given = plan_of(found), {**found["inputs"], **(inputs or {})}
    triggers = ",".join(found["checkpoints"]["on_events"]) if found["checkpoints"] else ""
    fields = {
        "crew": plan.crew,
        "adapter": found["adapter"],
        "bundle": packed.sha256,
        "module": packed.module,
        "attr": found["attr"],
        "plan": plan.digest,
        "inputs": stored(given),
        "queue": QUEUE,
        "envelope": "its own queue",
        "keep": str(KEEP),
        "checkpoint_on": f",{triggers}," if triggers else "",
        "max_checkpoints": str((found["checkpoints"] or {}).get("max_checkpoints") or 0),
    }
    if plan.grows:
        fields["beginning"] = stored(reading.initial_state(given))
    return Prepared(plan, packed, fields)


class InProcess:
    """One worker on a `MemoryStore`. Bundles are unpacked in ``folder``.

    ``between`` wraps the store that the executor uses, for instance to inject faults.
    """

    def __init__(
        self,
        folder: Path,
        *,
        between: Callable[[MemoryStore], Store] = lambda store: store,
        worker: str = "w0",
        store: MemoryStore | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryStore(self.clock)
        self.runs, self.workers = self.store.runs, self.store.workers
        self.stops = LocalStops()
        self._numbers = 0
        self.workers.beat(worker, LEASE, "{}")
        self.executor = JobExecutor(
            between(self.store),
            worker=worker,
            process="p0",
            cache=folder,
            stops=self.stops,
            outgoing=None,
            page=shared_memory.page(None, "p0"),
            retire=None,
            clock=self.clock,
        )

    def submit(self, crew: Path | str, inputs: Mapping[str, Any] | None = None, **options: str) -> str:
        """Create a run of a crew file and return its id. ``options`` are fields of the run."""
        read = prepare(crew, inputs)
        self._numbers += 1
        run_id = f"r-{self._numbers}"
        self.runs.put_bundle(read.bundle.sha256, read.bundle.data)
        created = self.runs.create(run_id, read.plan, {**read.fields, **options})
        assert created == "created", created
        return run_id

    def step(self) -> tuple[Job, Decision | Refusal] | None:
        """Perform the oldest job. None if there is none."""
        job = self.workers.take([QUEUE])
        return (job, self.executor.do(job)) if job is not None else None

    def work(self, *, most: int = 10_000) -> list[tuple[Job, Decision | Refusal]]:
        """Perform jobs until nothing is left but questions to people. The clock jumps over delays."""
        done: list[tuple[Job, Decision | Refusal]] = []
        while len(done) < most:
            one = self.step()
            if one is not None:
                done.append(one)
            elif (due := min(self.store.memory.due.values(), default=None)) is not None:
                self.clock.advance(max(0.0, due / 1000 - self.clock.now()))
                self.workers.move_due()
            else:
                break
        return done

    def texts(self, run_id: str, branch: str = "main") -> dict[str, str]:
        """Return the committed outputs as text, by task."""
        return {key: output.raw for key, output in self.runs.committed(run_id, branch).items()}
