"""What must hold after every operation: the store agrees with the model, keeps the laws, makes only listed moves."""

import json
from typing import Any

from runner.core.plan import waits
from runner.core.plan.branching import part, unpack
from runner.core.plan.dependencies import EDITED, NOTHING, Used
from runner.core.states import RUN_MOVES, TASK_MOVES, RunStatus, TaskState
from runner.providers.redis import keys
from runner.providers.redis.stream import fields_of

from .model import Model
from .model_run import Branch
from .model_run import Run as ModelRun
from .observed import ObservedBranch, ObservedRun, World

#: Keys that may stand without a lifetime. Those of runs and bundles may only while a run goes on.
INDEXES = {
    *("runs_key", "active_key", "expiring_key", "queued_key", "due_key", "outbox_key"),
    *("workers_key", "worker_key", "claims_key", "queue", "test"),
}

TASK_FIELDS = ("state", "attempt", "token", "worker", "process", "begun", "crashes", "handed", "reached", "failures")


def job_of(message: str) -> tuple[str, str, str, int]:
    """What a worker reads in a message: ids, and nothing else."""
    args, kwargs, _ = json.loads(json.loads(message)["body"])
    assert args == []
    assert kwargs.keys() == {"run", "branch", "task", "attempt"}
    return kwargs["run"], kwargs["branch"], kwargs["task"], kwargs["attempt"]


def agree(world: World, model: Model) -> None:
    """The store says what the model says."""
    assert world.runs.keys() == model.runs.keys()
    for id, expected in model.runs.items():
        run = world.runs[id]
        fields = {"status": expected.status, "branch": expected.branch, "bundle": expected.bundle}
        assert {name: run.fields[name] for name in fields} == fields
        assert {name: int(run.fields.get(name, 0)) for name in expected.counters} == expected.counters
        assert int(run.fields.get("token", 0)) == expected.tokens
        assert run.listed == run.branches.keys() == expected.branches.keys()
        for name, branch in expected.branches.items():
            _branch_agrees(run.branches[name], expected, name, branch, model)
    _indexes_agree(world, model)


def _branch_agrees(seen: ObservedBranch, run: ModelRun, name: str, expected: Branch, model: Model) -> None:
    assert int(seen.fields["seq"]) == expected.seq
    assert seen.fields["status"] == expected.status
    assert seen.fields.get("parent", "") == expected.parent
    assert {key: (o["seq"], o["token"], o["raw"]) for key, o in seen.outputs.items()} == expected.outputs
    assert {key: Used.from_json(used) for _, key, *used in seen.order if used} == {
        key: used for key, used in expected.used.items() if used not in (NOTHING, EDITED)
    }
    assert json.loads(seen.fields.get("inputs", "{}")) == expected.inputs
    assert unpack(run.plan, seen.fields["todo"]) == expected.todo if "todo" in seen.fields else expected.todo is None
    assert seen.open == seen.tasks.keys() == expected.tasks.keys()
    for key, task in expected.tasks.items():
        due = {field: str(value) for field, value in model.fields_of(task).items()}
        found = {field: seen.tasks[key].get(field, "0") for field in TASK_FIELDS}
        assert {field: value for field, value in found.items() if value not in ("0", "")} == due, key
    assert seen.journals == {key: journal for key, journal in expected.journals.items() if journal}
    kept = expected.checkpoints[-run.most :] if run.most else expected.checkpoints
    assert [seq for _, seq in seen.checkpoints] == [one.seq for one in kept]
    for (id, seq), one in zip(seen.checkpoints, kept, strict=True):
        stored_seq, _, _, trigger, task = seen.lineage[id]
        assert (int(stored_seq), trigger, task) == (seq, one.trigger, one.task)
    if run.goes_on(name):
        assert seen.waits == model.waits(run, name)


def _indexes_agree(world: World, model: Model) -> None:
    for index, places, name in (("queued_key", model.queued, keys.queued_ref), ("due_key", model.due, keys.ref)):
        assert world.single(index, {}) == {name(*place): at for place, at in places.items()}, index
    assert world.single("outbox_key", {}).keys() == {f"{job.ref}|{job.attempt}" for job in model.outbox}
    for queue, messages in model.lists.items():
        stored = world.entries[queue].value if queue in world.entries else []
        assert [job_of(text) for text in stored] == [(j.run_id, j.branch, j.task, j.attempt) for j in messages]
    assert world.single("workers_key", {}) == {id: worker.lapses_at for id, worker in model.workers.items()}
    assert {id: w["about"] for id, w in world.by("worker_key", "worker").items()} == {
        id: worker.about for id, worker in model.workers.items()
    }
    claims = {
        id: {"|".join(place): "|".join(map(str, claim)) for place, claim in worker.claims.items()}
        for id, worker in model.workers.items()
        if worker.claims
    }
    assert world.by("claims_key", "worker") == claims
    assert {sha: int(b["active"]) for sha, b in world.by("bundle_key", "sha").items()} == model.bundles


class Laws:
    """The laws, on what is seen alone; and the memory that some of them need."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str, int], str] = {}

    def hold(self, world: World) -> None:
        """Every law that one look can show."""
        running = set()
        for id, run in world.runs.items():
            assert run.plan is not None
            lines = {name: branch.fields["status"] for name, branch in run.branches.items()}
            assert lines[run.fields["branch"]] == run.fields["status"], "a run stands as its current line does"
            for name, status in lines.items():
                if status == "running":
                    standing = {state for (which, _), state in run.states().items() if which == name}
                    assert standing & {"queued", "running", "delayed"}, f"{name} of {id} hangs: {run.states()}"
                else:
                    assert status == "completed" or run.branches[name].fields["error"], "the reason, in words"
            live = "running" in lines.values()
            assert int(run.fields["live"]) == list(lines.values()).count("running")
            if live:
                running.add(id)
            for key, ttl in run.lifetimes.items():
                assert (ttl < 0) if live else (0 < ttl <= int(run.fields["keep"])), (key, ttl, lines)
            for name, branch in run.branches.items():
                self._branch(run, name, branch, lines[name] == "running")
                self._checkpoints(id, run, name, branch)
            assert int(fields_of(dict(_pairs(run.events[0][1])))["seq"]) == int(run.fields["events"])
        assert world.single("active_key", {}).keys() == running
        assert world.single("expiring_key", {}).keys() == world.runs.keys() - running
        assert world.single("runs_key", {}).keys() == world.runs.keys()
        _indexed(world)
        for key, entry in world.entries.items():
            if entry.name == "bundle_key":
                assert (entry.ttl < 0) == (int(entry.value["active"]) > 0), key
            elif "run_id" not in entry.parts:
                assert entry.ttl > 0 or entry.name in INDEXES, f"{key} stays for ever"

    def _branch(self, run: ObservedRun, name: str, branch: ObservedBranch, goes_on: bool) -> None:
        assert run.plan is not None
        done = run.committed(name).keys()
        left = run.todo(name) - done
        ready = {key for key in left if left.isdisjoint(run.plan.earlier(key))}
        if goes_on:
            assert branch.open == ready
            assert branch.waits == waits(part(run.plan, run.todo(name)), done)
            assert int(branch.fields["left"]) == len(run.plan.tasks) - len(done)
        else:
            assert branch.open <= ready
            assert {task["state"] for task in branch.tasks.values()} <= {"held", "failed", "running"}
        assert branch.journals.keys() <= branch.open, "a journal goes with its task"
        seqs = [output["seq"] for output in branch.outputs.values()]
        assert len(set(seqs)) == len(seqs)
        edited = json.loads(branch.fields.get("edits", "[]"))
        order = [[i, task] for i, task in enumerate(edited, int(branch.fields.get("parent_seq", 0)) + 1)]
        order += [entry[:2] for entry in branch.order]
        assert order == sorted([o["seq"], task] for task, o in branch.outputs.items())
        assert edited == [task for _, task in order if "edited" in branch.outputs[task]]
        assert branch.outputs.keys() - edited <= run.todo(name)

    def _checkpoints(self, run_id: str, run: ObservedRun, name: str, branch: ObservedBranch) -> None:
        most = int(run.fields["max_checkpoints"])
        assert most == 0 or len(branch.checkpoints) <= most
        assert branch.lineage.keys() == {id for id, _ in branch.checkpoints}
        before = None
        for id, seq in branch.checkpoints:
            assert self.ids.setdefault((run_id, name, seq), id) == id
            if before is not None:
                assert branch.lineage[id][2] == before, "each names the one before it as its parent"
            before = id
        if before is not None:
            assert branch.fields["head"] == before
        assert len(set(self.ids.values())) == len(self.ids)


def _indexed(world: World) -> None:
    """Each index lists exactly the tasks that are in its state."""
    where: dict[str, set[str]] = {"queued": set(), "delayed": set(), "running": set()}
    sent: set[str] = set()
    for id, run in world.runs.items():
        for name, branch in run.branches.items():
            for key, task in branch.tasks.items():
                claim = f"|{task['token']}|{task['worker']}|{task['process']}" if task["state"] == "running" else ""
                where.setdefault(task["state"], set()).add(f"{id}|{name}|{key}{claim}")
                sent |= {keys.queued_ref(id, name, key)} if task["state"] == "queued" else set()
    assert sent == world.single("queued_key", {}).keys()
    assert where["delayed"] == world.single("due_key", {}).keys()
    held = set()
    for worker, claims in world.by("claims_key", "worker").items():
        for reference, claim in claims.items():
            token, process, _ = claim.split("|")
            held.add(f"{reference}|{token}|{worker}|{process}")
    assert where["running"] == held


def moved(before: World, after: World) -> None:
    """What changed between two looks is in the tables, and what is immutable did not change."""
    for id, run in after.runs.items():
        was = before.runs.get(id)
        if was is None:
            assert run.fields["status"] == "running"
            continue
        _run_moved("run", was.fields["status"], run.fields["status"])
        for name, branch in was.branches.items():
            _run_moved(name, branch.fields["status"], run.branches[name].fields["status"])
        then = was.states()
        for place, state in run.states().items():
            _task_moved(place, then.get(place, "committed" if state == "committed" else "waiting"), state)
        for name, branch in was.branches.items():
            now = run.branches[name]
            assert all(now.outputs[task] == output for task, output in branch.outputs.items()), "outputs are immutable"
            assert branch.fields.get("parent") == now.fields.get("parent")
            for key, task in branch.tasks.items():
                if key in now.tasks and task["state"] == now.tasks[key]["state"] == "running":
                    assert task["token"] == now.tasks[key]["token"], "a claim changes hands by being given up"


def _run_moved(what: str, was: str, now: str) -> None:
    moves = {move: to for move, to in RUN_MOVES[RunStatus(was)].items() if move != "branch" or what == "run"}
    assert was == now or now in moves.values(), f"{what}: {was} -> {now}"


def _task_moved(place: tuple[str, str], was: str, now: str) -> None:
    assert was == now or now in TASK_MOVES[TaskState(was)].values(), f"{place}: {was} -> {now}"


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
