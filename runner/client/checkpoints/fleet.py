"""The checkpoints of a run on the fleet."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from runner.client import Client
from runner.client.checkpoints.commands import Command
from runner.client.checkpoints.model import Branch, Checkpoint, Details, EntityView, Origin, TaskView
from runner.core.diff import DONE, PENDING
from runner.core.errors import Conflict, StoreUnreachable
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.flows.edits import Given, replaced
from runner.providers.records import BranchRecord, CheckpointRecord, Committed
from runner.providers.redis.outages import REFUSED, TRANSIENT_ERRORS


class RunSource:
    """A run: its checkpoints are positions on its branches."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        with _in_words():
            self._crew = client.store.runs.get(run_id).crew
        self._plan: tuple[str, Plan] | None = None

    @property
    def title(self) -> str:
        """The run and its crew."""
        return f"run {self.run_id}"

    @property
    def where(self) -> str:
        """Its id."""
        return self.run_id

    def branches(self) -> Sequence[Branch]:
        """Its branches, each under the checkpoint that it left if that is still kept."""
        with _in_words():
            runs = self.client.store.runs
            runs.get(self.run_id)  # a run that is gone is said
            lines = runs.branch_records(self.run_id)
            kept = {line.name: runs.checkpoints(self.run_id, line.name) for line in lines}
        return [
            Branch(line.name, tuple(map(_checkpoint, kept[line.name])), _origin(line, kept), line.status.value)
            for line in lines
        ]

    def details(self, checkpoint: Checkpoint) -> Details:
        """Return what had been done on its branch by then."""
        with _in_words():
            runs = self.client.store.runs
            run = runs.get(self.run_id)
            found = runs.find_checkpoint(self.run_id, checkpoint.id)
            done = runs.committed(self.run_id, found.branch, found.seq)
            plan = self._plan_of(run.plan_digest)
            inputs = runs.branch(self.run_id, found.branch).inputs
        tasks = tuple(
            _done(task.key, done[task.key]) if task.key in done else TaskView(task.key, PENDING)
            for task in plan.shown(sorted(done, key=lambda key: done[key].seq))
        )
        ended = sum(task.status == DONE for task in tasks)
        return Details(
            _checkpoint(found), (EntityView("crew", run.crew, ended, len(tasks)),), run.inputs | inputs, tasks
        )

    def prune(self, keep: int, branch: str) -> int:
        """Keep the newest ``keep`` checkpoints of a branch. Data that a resume or a fork needs always stays."""
        with _in_words():
            return self.client.store.runs.prune(self.run_id, branch, keep)

    def live(self) -> bool:
        """Whether a branch runs."""
        with _in_words():
            return any(line.status is RunStatus.running for line in self.client.store.runs.branch_records(self.run_id))

    def _plan_of(self, digest: str) -> Plan:
        if self._plan is None or self._plan[0] != digest:
            self._plan = (digest, self.client.store.runs.plan(self.run_id))
        return self._plan[1]


class RunHandler:
    """Resumes or forks the run in the store: its workers do the rest."""

    refusal = ""
    leaves_screen = False

    def __init__(self, client: Client, run_id: str) -> None:
        self.client, self.run_id = client, run_id

    def check(self, command: Command) -> None:
        """Check nothing: `execute` refuses what is not possible."""

    def execute(self, command: Command) -> str:
        """Resume or fork the run. ``runner wait`` prints the result."""
        with _in_words():
            if command.verb == "resume":
                handle = self.client.resume(self.run_id, checkpoint=command.checkpoint.id)
                if not handle.created:
                    raise Conflict(f"run {self.run_id} is completed there: nothing is left to do")
            else:
                handle = self.client.fork(
                    self.run_id,
                    checkpoint=command.checkpoint.id,
                    branch=command.branch or None,
                    inputs=dict(command.inputs),
                    edits=dict(command.edits),
                )
        on = f" on {handle.branch}" if handle.branch else ""
        return "; ".join([f"{command.verb}: it continues{on}", *handle.notes, f"runner wait {handle.words}"])


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except REFUSED as error:
        raise StoreUnreachable(f"Redis refused: {error}") from None
    except TRANSIENT_ERRORS as error:
        raise StoreUnreachable(f"the connection to Redis was lost: {error}; refresh to try again") from None


def _done(task: str, output: Committed) -> TaskView:
    if not output.flow:
        return TaskView(task, DONE, output.raw, is_json=output.json is not None)
    text, is_json = replaced(Given(output.raw, output.json, output.flow))
    return TaskView(task, DONE, output.raw, is_json=is_json, replaced=None if text == output.raw else text)


def _checkpoint(record: CheckpointRecord) -> Checkpoint:
    return Checkpoint(**asdict(record))


def _origin(line: BranchRecord, kept: dict[str, list[CheckpointRecord]]) -> Origin | None:
    if not line.parent:
        return None
    there = {one.id for one in kept.get(line.parent, [])}
    return Origin(line.parent, line.checkpoint if line.checkpoint in there else "")
