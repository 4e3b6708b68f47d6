"""Runs behind a proxy, and their account: what the trace and the model server counted against what the ledger says."""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scene import HERE, label_of

from runner.client import Client, Prepared, RunHandle, RunResult, prepare
from runner.core.errors import NotFound
from runner.providers.redis.connection import connect
from runner.testing import (
    Call,
    Command,
    Fault,
    FaultProxy,
    Fleet,
    ModelRequest,
    ModelServer,
    RedisServer,
    children_of,
)

OpenRun = tuple[str, RunHandle, str]
"""The crew of a run, its handle, and its label."""

CREWS = ("graph", "agents", "growing")
LEASE = 3
PASSWORD = "pw"
TROUBLED = 2 * LEASE + 2  #: seconds after a blow in which something may yet break by it


def script(request: ModelRequest) -> Any:
    """One use of a tool, then an answer: made of the conversation alone."""
    if request.turn == 0:
        task = "second" if "task=second" in request.text else "first"
        return Call("look", {"thing": f"{label_of(request)}/{task}"})
    return "it is there"


@dataclass
class Outcome:
    """One run with blows."""

    repeated: int = 0
    in_doubt: int = 0
    verdict: str = "right"
    wrong: list[str] = field(default_factory=list)

    def is_wrong(self, verdict: str, what: str) -> None:
        """Note what is."""
        self.verdict = verdict
        self.wrong.append(what)


def tally(kind: str, outcomes: Iterable[tuple[str, Outcome]]) -> tuple[Counter[str], list[str]]:
    """How many runs came to what after what happened to them, and what is wrong."""
    told: Counter[str] = Counter()
    wrong: list[str] = []
    for run, outcome in outcomes:
        told.update({"runs": 1, outcome.verdict: 1, "repeated": outcome.repeated, "in doubt": outcome.in_doubt})
        wrong += [f"{kind}, {run}: {what}" for what in outcome.wrong]
    return told, wrong


@dataclass
class Ring:
    """A server, a proxy before it, workers behind that, and a client that goes around it."""

    redis: RedisServer
    proxy: FaultProxy
    client: Client
    fleet: Fleet
    models: ModelServer
    crews: dict[str, Prepared] = field(default_factory=dict)
    unharmed: dict[str, dict[str, str]] = field(default_factory=dict)
    troubled_until: float = 0.0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    user: str = ""  #: that the workers log in as

    def start(self, workers: int, concurrency: int) -> None:
        """Start the workers."""
        for _ in range(workers):
            self.fleet.start("--concurrency", str(concurrency), wait=False)
        for worker in self.fleet.workers:
            worker.ready()

    def learn(self, crew: str, watch: Callable[[Command], Fault | None]) -> None:
        """Run it unharmed, twice: what it gives, and what its workers ask of the server once they are warm."""
        for look in (lambda _: None, watch):
            handle, label = self.submit(crew)
            self.proxy.decide = look
            result = self.end(handle, 60)
            self.proxy.decide = lambda _: None
            assert result.status == "completed", result
            self.unharmed[crew] = _without(result.outputs, label)

    def submit(self, crew: str, **inputs: Any) -> tuple[RunHandle, str]:
        """A new run, and its label."""
        if crew not in self.crews:
            self.crews[crew] = prepare(f"{HERE / 'crews' / 'ring.py'}:{crew}")
        label = f"n{next(self.numbers)}x"
        handle = self.client.submit(
            self.crews[crew],
            {"label": label, **inputs},
            max_checkpoints=2,
            checkpoint_on=["task_completed", "task_started"],
        )
        return handle, label

    def submit_some(self, crews: Sequence[str], many: int, **inputs: Any) -> list[OpenRun]:
        """So many runs, of each of these crews in turn."""
        return [(crew, *self.submit(crew, **inputs)) for crew in itertools.islice(itertools.cycle(crews), many)]

    def end(self, handle: RunHandle, deadline: float) -> RunResult:
        """Wait for its end; a person's question is answered."""
        while (result := handle.wait(deadline)).status == "waiting":
            self.client.answer(handle.id, approve=True)
        return result

    def outcome(self, crew: str, label: str, handle: RunHandle, deadline: float) -> Outcome:
        """What a run came to that goes on."""
        outcome = Outcome()
        try:
            self.account(outcome, crew, label, self.end(handle, deadline))
        except NotFound:
            outcome.verdict = "gone"
        except TimeoutError:
            outcome.is_wrong("hung", f"hung for {deadline:g} s")
        return outcome

    def outcomes(self, open_runs: Sequence[OpenRun], deadline: float) -> Iterator[tuple[str, Outcome]]:
        """What each of these runs came to, with how it is called."""
        for crew, handle, label in open_runs:
            yield f"{crew} {label}", self.outcome(crew, label, handle, deadline)

    def run(self, crew: str, aim: Callable[[Command], Fault | None], *, deadline: float, calm: bool) -> Outcome:
        """A run while ``aim`` deals its blows. Where it is ``calm``, nothing breaks: no restart, no recovery.

        Unless a blow to an earlier run breaks something yet: a lease lapses seconds after its connection was lost.
        """
        outcome, began = Outcome(), time.monotonic()
        mains = self.mains()
        self.proxy.decide = aim
        handle, label = self.submit(crew)
        try:
            result = self.end(handle, deadline)
        except TimeoutError:
            outcome.is_wrong("hung", f"hung for {deadline:g} s")
            self.proxy.decide = lambda _: None
            handle.cancel()
            return outcome
        finally:
            self.proxy.decide = lambda _: None
            if not calm:
                self.troubled_until = time.monotonic() + TROUBLED
        self.account(outcome, crew, label, result)
        calm = calm and began > self.troubled_until
        if calm and self.mains() != mains:
            outcome.is_wrong("wrong", "a worker restarted itself")
        if calm and result.recoveries:
            why = [event.fields for event in handle.events() if event.type in ("task_recovered", "task_released")]
            outcome.is_wrong("wrong", f"{result.recoveries} recoveries, though nothing broke: {why}")
        return outcome

    def mains(self) -> list[list[int]]:
        """The workers' main processes; none where one is just coming up."""
        return [children_of(worker.pid) for worker in self.fleet.workers]

    def account(self, outcome: Outcome, crew: str, label: str, result: RunResult) -> None:
        """Hold what a run came to against the unharmed one, the trace, and the model server's count."""
        if result.status != "completed":
            outcome.is_wrong("failed", f"it is {result.status}: {result.error}")
            return
        if _without(result.outputs, label) != self.unharmed[crew]:
            outcome.is_wrong("wrong", f"its outputs are {result.outputs}")
        ledger = result.ledger
        did = self.steps(label)
        asked = Counter(request.digest for request in self._requests(label))
        outcome.repeated = sum(did.values()) - len(did) + sum(asked.values()) - len(asked)
        outcome.in_doubt = ledger["in_doubt"] + (ledger.get("tools") or {}).get("in_doubt", 0)
        if outcome.repeated > outcome.in_doubt:
            outcome.is_wrong("wrong", f"{outcome.repeated} done again, {outcome.in_doubt} in doubt: {did}, {ledger}")
        known = sum(row["calls"] + row["in_doubt"] for row in ledger["by"])
        if asked.total() > known:
            outcome.is_wrong("wrong", f"the model server was asked {asked.total()} times, the ledger knows of {known}")
        tasks = [
            event.fields["task"] for event in self.client.run(result.run_id).events() if event.type == "task_completed"
        ]
        if len(tasks) != len(set(tasks)):
            outcome.is_wrong("wrong", f"committed twice: {tasks}")

    def asked(self, label: str) -> int:
        """How often the model server was asked for a run."""
        return len(self._requests(label))

    def _requests(self, label: str) -> list[ModelRequest]:
        return [request for request in self.models.log if label_of(request).startswith(label)]

    def steps(self, label: str) -> Counter[str]:
        """How often each step of a run was done."""
        with contextlib.suppress(FileNotFoundError), open(self.fleet.settings["CHAOS_TRACE"]) as trace:  # noqa: PTH123 - a name from a setting
            return Counter(line for line in trace if line.startswith(f"step {label}/"))
        return Counter()

    def log(self) -> str:
        """What the workers said."""
        return self.fleet.log()


def log_in(admin: Any, user: str) -> None:
    """Let the workers' user do everything."""
    admin.execute_command("ACL", "SETUSER", user, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")


def _without(outputs: dict[str, str], label: str) -> dict[str, str]:
    return {task: text.replace(label, "LABEL") for task, text in outputs.items()}


@contextlib.contextmanager
def ring(
    workers: int = 2,
    concurrency: int = 2,
    *,
    folder: Path | None = None,
    around: bool = True,
    user: str = "",
    **settings: str,
) -> Iterator[Ring]:
    """All of it, for as long as the context lasts. The client goes ``around`` the proxy, or through it.

    The workers log in as this ``user``, if one is named.
    """
    with (
        RedisServer(folder) as redis,
        FaultProxy(redis) as proxy,
        ModelServer(script) as models,
        Client((redis if around else proxy).url) as client,
        Fleet(proxy.url.replace("://", f"://{user}:{PASSWORD}@") if user else proxy.url) as fleet,
    ):
        if user:
            with connect(redis.url) as admin:
                log_in(admin, user)

        fleet.settings = {
            **models.environment,
            "CHAOS_TRACE": str(fleet.folder / "trace"),
            "RUNNER_LEASE": str(LEASE),
            **settings,
        }
        stage = Ring(redis, proxy, client, fleet, models, user=user)
        stage.start(workers, concurrency)
        yield stage
