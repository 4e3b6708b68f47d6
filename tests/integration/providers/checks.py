"""What must hold after every operation: Redis agrees with memory, keeps the laws, makes only listed moves."""

import json
import math
from typing import Any

from runner.core.jobs import ref
from runner.core.ledger import reserved_text
from runner.core.plan import waits
from runner.core.plan.branching import part, unpack, visible
from runner.core.plan.dependencies import EDITED, NOTHING, ReadSet
from runner.core.states import RUN_MOVES, TASK_MOVES, RunStatus, TaskState
from runner.providers.memory import MemoryStore
from runner.providers.memory.state import Branch, Memory, Run, Task
from runner.providers.records import COUNTERS
from runner.providers.redis import keys
from runner.providers.redis.records import event_record
from runner.providers.redis.stream import fields_of

from .observed import ObservedBranch, ObservedRun, World, describe

#: Keys that may stand without a lifetime. Those of runs and bundles may only while a run goes on.
INDEXES = {
    *("runs_key", "active_key", "expiring_key", "queued_key", "due_key", "outbox_key"),
    *("workers_key", "worker_key", "claims_key", "queue", "test"),
}

LIVE = ("running", "waiting")
COUNTS = ("crashes", "handed", "reached", "failures", "failed", "prompt_tokens", "completion_tokens")
SCOPE = ("scope", "started", "claimed")


def job_of(message: str) -> tuple[str, str, str, int]:
    """What a worker reads in a message: ids, and nothing else."""
    args, kwargs, _ = json.loads(json.loads(message)["body"])
    assert args == []
    assert kwargs.keys() == {"run", "branch", "task", "attempt"}
    return kwargs["run"], kwargs["branch"], kwargs["task"], kwargs["attempt"]


def agree(world: World, store: MemoryStore, too_late: dict[str, int]) -> None:
    """Redis says what memory says. ``too_late`` are steps by run that were begun there without waiting for an answer,
    by who had lost the claim: memory refuses them at once."""
    memory = store.memory
    assert world.runs.keys() == memory.runs.keys()
    for id, expected in memory.runs.items():
        run = world.runs[id]
        fields = {"status": expected.status, "branch": expected.branch, "bundle": expected.fields["bundle"]}
        assert {name: run.fields[name] for name in fields} == fields
        counted = {name: expected.counters[name] for name in (*COUNTERS, "recoveries")}
        counted["in_doubt"] += too_late.get(id, 0)
        found = {name: int(run.fields.get(name, 0)) for name in counted}
        assert found == counted, f"{found}, not {counted}"
        assert int(run.fields.get("token", 0)) == expected.token
        assert int(run.fields["tasks"]) == expected.planned
        assert run.ledger == {key: line[:6] for key, line in expected.ledger.items()}
        assert run.listed == run.branches.keys() == expected.branches.keys()
        _events_agree(run, expected)
        for name, branch in expected.branches.items():
            _branch_agrees(run.branches[name], expected, name, branch)
    _indexes_agree(world, memory)


def _events_agree(run: ObservedRun, expected: Run) -> None:
    """The newest are the same, each with the same relatives. Which branch a script turns to first is left open."""
    assert int(run.fields["events"]) == expected.sequence
    seen = [event_record(expected.id, id, dict(_pairs(entry))) for id, entry in reversed(run.events)]
    due = list(expected.events)[-len(seen) :]
    assert [event.seq for event in seen] == [event.seq for event in due]
    said = [(e.type, sorted(e.fields.items()), e.parent, e.started, e.cause) for e in seen]
    assert sorted(said) == sorted((e.type, sorted(e.fields.items()), e.parent, e.started, e.cause) for e in due)


def _branch_agrees(seen: ObservedBranch, run: Run, name: str, expected: Branch) -> None:
    assert int(seen.fields["seq"]) == expected.seq
    assert seen.fields["status"] == expected.status
    assert int(seen.fields["left"]) == expected.left
    assert seen.fields.get("error", "") == expected.error
    assert seen.fields.get("parent", "") == expected.parent
    assert int(seen.fields.get("asked", 0)) == expected.asked
    commits = len(seen.order)
    assert int(seen.fields.get("done", commits)) == commits, "commits are counted, unless the only one ended the branch"
    assert "done" in seen.fields or commits <= 1
    assert int(seen.fields.get("edited", 0)) == len(expected.edited)
    assert not {"lost", "before", "holes"} & seen.fields.keys(), "nothing was lost"
    assert {key: _lasting(output) for key, output in seen.outputs.items()} == {
        key: _lasting(json.loads(output.text)) for key, output in expected.outputs.items()
    }
    assert {key: ReadSet.from_json(used) for _, key, *used in seen.order if used} == {
        key: output.used for key, output in expected.outputs.items() if output.used not in (NOTHING, EDITED)
    }
    assert json.loads(seen.fields.get("inputs", "{}")) == json.loads(expected.inputs)
    assert (
        unpack(run.plan, seen.fields["todo"]) == run.rerun(name) if "todo" in seen.fields else expected.rerun_mask == ""
    )
    assert (seen.shared.get("version", ""), {k[1:]: v for k, v in seen.shared.items() if k != "version"}) == (
        expected.version,
        expected.shared,
    )
    assert seen.open == seen.tasks.keys() == expected.tasks.keys()
    for key, task in expected.tasks.items():
        _task_agrees(seen.tasks[key], task)
    assert seen.journals == {key: journal for key, journal in expected.journals.items() if journal}
    assert seen.steps == expected.steps
    assert [(id, int(seq)) for id, seq in seen.checkpoints] == [(one.id, one.seq) for one in expected.checkpoints]
    for one in expected.checkpoints:
        seq, at, parent, trigger, task = seen.lineage[one.id]
        assert (int(seq), int(at), parent, trigger, task) == (
            *(one.seq, one.created_at),
            *(one.parent, one.trigger, one.task),
        )
    if expected.is_active and not run.plan.grows:
        assert seen.waits == waits(part(run.plan, run.rerun(name)), visible(run.lines(name)).keys())


def _task_agrees(seen: dict[str, str], task: Task) -> None:
    due: dict[str, Any] = {"state": task.state, "attempt": task.attempt}
    if task.token is not None:
        due |= {"token": task.token, "worker": task.worker, "process": task.process, "nonce": task.nonce}
    due |= {name: getattr(task, name) for name in (*COUNTS, *SCOPE)} | {"step": task.step, "question": task.question}
    due |= {"error": task.error, "trace": task.trace, "by": task.failed_on}
    due |= {"began": task.began or 0, "ended": task.ended or 0}
    found = {name: seen.get(name, "") for name in due}
    assert {name: text for name, text in found.items() if text not in ("", "0")} == {
        name: str(value) for name, value in due.items() if value not in ("", 0)
    }
    assert json.loads(seen.get("begun") or "[]") == json.loads(task.begun.text() or "[]")
    assert seen.get("reserved", "") == reserved_text(task.reserved)
    assert json.loads(seen.get("open", "[]")) == [list(one) for one in task.open]
    assert json.loads(seen.get("context", "[]")) == list(task.context)


def _lasting(output: dict[str, Any]) -> dict[str, Any]:
    """Without whose it was among several claims, which Redis keeps for when it goes back in time."""
    return {name: value for name, value in output.items() if name != "of"}


def _indexes_agree(world: World, memory: Memory) -> None:
    for index, places, name in (("queued_key", memory.queued, keys.queued_ref), ("due_key", memory.due, ref)):
        assert world.single(index, {}) == {name(*place): at for place, at in places.items()}, index
    assert world.single("outbox_key", {}) == {f"{job.ref}|{job.attempt}": at for job, at in memory.outbox.items()}
    for queue in {*memory.queues, *(name for name, entry in world.entries.items() if entry.name == "queue")}:
        stored = world.entries[queue].value if queue in world.entries else []
        messages = [(job.run_id, job.branch, job.task, job.attempt) for job in reversed(memory.queues[queue])]
        assert [job_of(text) for text in stored] == messages
    assert world.single("workers_key", {}) == {id: worker.lapses_at for id, worker in memory.workers.items()}
    assert {id: (w["about"], int(w.get("recheck", 0))) for id, w in world.by("worker_key", "worker").items()} == {
        id: (worker.about, worker.recheck) for id, worker in memory.workers.items()
    }
    claims = {
        id: {"|".join(place): f"{claim.token}|{claim.process}|{claim.deadline}" for place, claim in held.items()}
        for id, held in memory.claims.items()
        if held
    }
    assert world.by("claims_key", "worker") == claims
    assert {sha: int(b["active"]) for sha, b in world.by("bundle_key", "sha").items()} == {
        sha: bundle.active for sha, bundle in memory.bundles.items()
    }


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
                elif status == "waiting":
                    assert "asked" in {state for (which, _), state in run.states().items() if which == name}
                else:
                    assert status == "completed" or run.branches[name].fields["error"], "the reason, in words"
            live = sum(status in LIVE for status in lines.values())
            assert int(run.fields["live"]) == live
            if live:
                running.add(id)
            for key, ttl in run.lifetimes.items():
                lasts = live and not self._expires_by_itself(run, key)
                assert (ttl < 0) if lasts else (0 < ttl <= int(run.fields["keep"])), (key, ttl, lines)
            for name, branch in run.branches.items():
                self._branch(run, name, branch, lines[name] in LIVE)
                self._checkpoints(id, run, name, branch)
            assert int(fields_of(dict(_pairs(run.events[0][1])))["seq"]) == int(run.fields["events"])
        assert world.single("active_key", {}).keys() == running
        assert world.single("expiring_key", {}).keys() == world.runs.keys() - running
        assert world.single("runs_key", {}).keys() == world.runs.keys()
        _indexed(world)
        assert world.by("claims_key", "worker").keys() <= world.single("workers_key", {}).keys(), (
            "who claims has a lease"
        )
        for key, entry in world.entries.items():
            if entry.name == "bundle_key":
                assert (entry.ttl < 0) == (int(entry.value["active"]) > 0), key
            elif "run_id" not in entry.parts:
                assert entry.ttl > 0 or entry.name in INDEXES, f"{key} stays for ever"

    def _expires_by_itself(self, run: ObservedRun, key: str) -> bool:
        """Whether a key is one of those that are kept for what was done, as long as that."""
        name, parts = describe(key)
        kept = name == "journal_key" and parts["task"] in run.branches[parts["branch"]].kept
        return kept or name in ("steps_key", "journals_key")

    def _branch(self, run: ObservedRun, name: str, branch: ObservedBranch, is_active: bool) -> None:
        assert run.plan is not None
        done = run.committed(name).keys()
        left = run.rerun(name) - done
        ready = {key for key in left if left.isdisjoint(run.plan.earlier(key))}
        if is_active:
            assert branch.open == ready
            assert branch.waits == waits(part(run.plan, run.rerun(name)), done)
            assert int(branch.fields["left"]) == len(run.plan.tasks) - len(done)
        else:
            assert branch.open <= ready
            assert {task["state"] for task in branch.tasks.values()} <= {"held", "failed", "running", "asked"}
        assert branch.journals.keys() <= branch.open | branch.kept.keys(), "a journal goes with its task"
        oldest = branch.checkpoints[0][1] if branch.checkpoints else math.inf
        for task, seq in branch.kept.items():
            assert seq == branch.outputs[task]["seq"] > oldest, "unless a checkpoint before its end needs it"
        assert branch.steps.keys() <= branch.journals.keys()
        seqs = [output["seq"] for output in branch.outputs.values()]
        assert len(set(seqs)) == len(seqs)
        edited = json.loads(branch.fields.get("edits", "[]"))
        order = [[i, task] for i, task in enumerate(edited, int(branch.fields.get("parent_seq", 0)) + 1)]
        order += [entry[:2] for entry in branch.order]
        assert order == sorted([o["seq"], task] for task, o in branch.outputs.items())
        assert edited == [task for _, task in order if "edited" in branch.outputs[task]]
        assert branch.outputs.keys() - edited <= run.rerun(name)

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
