"""What the store is to do, in plain Python: no Redis, no Lua, no clock of its own."""

from collections.abc import Set
from typing import Any

from runner.core.plan import Plan, PlannedTask, waits
from runner.core.plan.branching import part
from runner.core.plan.dependencies import EDITED, Used
from runner.providers.redis.jobs import Job

from .model_run import Branch, Checkpoint, Place, Run, Task, Worker

REFUSED = "refused"


class Model:
    """Every operation, with the answer that is due."""

    def __init__(self, now: int, queues: tuple[str, ...], bundles: tuple[str, ...]) -> None:
        self.now = now
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, Worker] = {}
        self.queued: dict[Place, int] = {}
        self.due: dict[Place, int] = {}
        self.outbox: set[Job] = set()
        self.lists: dict[str, list[Job]] = {queue: [] for queue in queues}
        self.bundles = dict.fromkeys(bundles, 0)

    # -- runs

    def create(self, run: Run) -> str:
        if run.id in self.runs:
            return "exists"
        self.runs[run.id] = run
        self._use_bundle(run, +1)
        self._checkpoint(run, "main", "crew_kickoff_started")
        for task in run.ready("main"):
            self._queue(run, "main", task)
        return "created"

    def cancel(self, run: Run, only: str | None = None) -> str:
        was = run.branches[only].status if only else "running" if run.live else run.status
        for name, branch in run.branches.items():
            if branch.status == "running" and only in (None, name):
                self._finish(run, name, "cancelled")
                self._recall(run, name)
        return was

    def resume(
        self, run: Run, name: str, start: tuple[str, int, str] | None, bundle: str | None, plan: Plan | None
    ) -> str:
        """``start`` is the branch, sequence and id of the checkpoint that the new branch ``name`` leaves."""
        if (bundle or plan) and run.live:
            return "busy"
        current = run.status
        if start is not None:
            done = run.committed(*start[:2])
            run.branches[name] = Branch(parent=start[0], parent_seq=start[1], head=start[2], seq=start[1], status="")
            run.branches[name].inputs = run.branches[start[0]].inputs
            run.branches[name].todo = frozenset(run.plan.by_key.keys() - done.keys())
            self._take_along(run, start[0], name, set())
        if current != "running":
            run.branch = name
        self._begin(run, name, bundle)
        if plan is not None:
            for branch in run.branches.values():
                if branch.todo is not None:
                    branch.todo |= plan.by_key.keys() - run.plan.by_key.keys()
            run.plan = plan
            for other in run.branches:
                self._recall(run, other)
        for task in run.ready(name):
            known = run.branches[name].tasks.get(task.key)
            if known is None or known.state != "running":
                self._queue(run, name, task, attempt=known.attempt if known else 1)
                if known is not None:
                    run.branches[name].tasks[task.key].started = known.started
                    run.branches[name].tasks[task.key].copies = known.copies
        return "resumed"

    def fork(
        self, run: Run, name: str, at: tuple[str, int, str], edits: dict[str, str], inputs: dict[str, Any]
    ) -> None:
        """``at`` is the branch, the sequence and the id of the checkpoint that it leaves."""
        parent, seq, head = at
        branch = Branch(parent=parent, parent_seq=seq, head=head, seq=seq, status="")
        left = run.plan.by_key.keys() - run.committed(parent, seq).keys()
        before = {"topic": "ü"} | run.branches[parent].inputs
        changed = {name: value for name, value in inputs.items() if before.get(name) != value}
        branch.todo = frozenset(left | run.touched(parent, seq, edits.keys(), changed.keys()))
        branch.inputs = run.branches[parent].inputs | changed
        for key, text in edits.items():
            branch.seq += 1
            branch.outputs[key] = (branch.seq, 0, text)
            branch.used[key] = EDITED
        run.branches[name] = branch
        if not changed:
            self._take_along(run, parent, name, edits.keys())
        self._begin(run, name)
        self._checkpoint(run, name, "crew_kickoff_started")
        for task in run.ready(name):
            self._queue(run, name, task)
        if not branch.todo:
            self._checkpoint(run, name, "crew_kickoff_completed")
            self._finish(run, name, "completed")

    # -- claims

    def beat(self, id: str, about: str, lease: int) -> bool:
        stood = id in self.workers
        if about and not stood:
            self.workers[id] = Worker(about, 0)
        if id in self.workers:
            self.workers[id].about = about or self.workers[id].about
            self.workers[id].lapses_at = self.now + lease
        return stood

    def claim(self, job: Job, worker: str, process: str, nonce: str) -> str:
        """ "claimed", or why not."""
        run = self.runs[job.run_id]
        branch = run.branches[job.branch]
        task = branch.tasks.get(job.task)
        if task is not None and task.state == "running" and task.nonce == nonce:
            return "claimed"
        if branch.status != "running":
            return branch.status
        if task is None or task.state != "queued" or task.attempt != job.attempt:
            return "taken"
        if worker not in self.workers:
            return "unregistered"
        place = (job.run_id, job.branch, job.task)
        run.tokens = max(run.tokens + 1, (self.now - run.created_at) * 1000)
        task.state, task.token, task.worker, task.process, task.nonce = "running", run.tokens, worker, process, nonce
        del self.queued[place]
        timeout = run.plan.by_key[job.task].timeout
        self.workers[worker].claims[place] = (run.tokens, process, self.now + int(timeout * 1000) if timeout else 0)
        if not task.started:
            task.started = True
            self._checkpoint(run, job.branch, "task_started", job.task)
        return "claimed"

    def held(self, job: Job, token: int) -> Task | None:
        """The task, if this token still holds it."""
        task = self.runs[job.run_id].branches[job.branch].tasks.get(job.task)
        return task if task is not None and task.token == token else None

    def record(self, job: Job, token: int, step: str, value: str, **counted: int) -> str:
        task = self.held(job, token)
        if task is None:
            return REFUSED
        run = self.runs[job.run_id]
        journal = run.branches[job.branch].journals.setdefault(job.task, {})
        task.begun = max(task.begun - 1, 0)
        task.got[token] = task.got.get(token, 0) + 1 + counted["replayed"]
        if task.got[token] > task.reached:
            task.crashes, task.handed, task.reached = 0, 0, task.got[token]
        if step not in journal:
            journal[step] = value
            for name, count in {"paid": 1, **counted}.items():
                run.counters[name] += count
        return "recorded"

    def commit(self, job: Job, token: int, text: str, replayed: int, used: Used) -> str:
        """The branch's status after it."""
        run = self.runs[job.run_id]
        branch = run.branches[job.branch]
        if job.task in branch.outputs:
            return branch.status if branch.outputs[job.task][1] == token else REFUSED
        task = self.held(job, token)
        if task is None:
            return REFUSED
        branch.seq += 1
        branch.outputs[job.task] = (branch.seq, token, text)
        branch.used[job.task] = used
        del branch.tasks[job.task]
        branch.journals.pop(job.task, None)
        del self.workers[task.worker].claims[job.run_id, job.branch, job.task]
        run.counters["replayed"] += replayed
        run.counters["in_doubt"] += task.begun
        self._checkpoint(run, job.branch, "task_completed", job.task)
        if run.goes_on(job.branch):
            for other in run.ready(job.branch):
                if other.key not in branch.tasks:
                    self._queue(run, job.branch, other)
            if run.todo(job.branch) <= branch.outputs.keys():
                self._checkpoint(run, job.branch, "crew_kickoff_completed")
                self._finish(run, job.branch, "completed")
        return branch.status

    def release(self, job: Job, token: int, replayed: int, *, most: int) -> str:
        task = self.held(job, token)
        if task is None:
            return REFUSED
        run = self.runs[job.run_id]
        run.counters["replayed"] += replayed
        run.counters["recoveries"] += 1
        self._hand_over(run, (job.run_id, job.branch, job.task), task, most)
        return "released"

    def take_back(self, job: Job, *, most: int) -> None:
        run = self.runs[job.run_id]
        run.counters["recoveries"] += 1
        self._hand_over(run, (job.run_id, job.branch, job.task), run.branches[job.branch].tasks[job.task], most)

    def retry(self, job: Job, token: int, delay: int, replayed: int) -> str:
        task = self.held(job, token)
        if task is None:
            return REFUSED
        run = self.runs[job.run_id]
        run.counters["replayed"] += replayed
        task.failures += 1
        place = (job.run_id, job.branch, job.task)
        self._give_up(run, place, task)
        task.state = "held"
        if run.goes_on(job.branch):
            task.state = "delayed"
            self.due[place] = self.now + delay
        return "delayed"

    def fail(self, job: Job, token: int, replayed: int) -> str:
        task = self.held(job, token)
        if task is None:
            return REFUSED
        run = self.runs[job.run_id]
        run.counters["replayed"] += replayed
        self._give_up(run, (job.run_id, job.branch, job.task), task)
        self._failed(run, job.branch, job.task)
        return "failed"

    def reap(self, id: str, *, process: str, about: str, only_lapsed: bool, most: int) -> set[Place] | None:
        """What was handed back; None if the judgement is void."""
        worker = self.workers.get(id)
        if worker is not None and only_lapsed and worker.lapses_at > self.now:
            return None
        if about and (worker is None or worker.about != about):
            return None
        back = set()
        for place, (_, by, _) in list(worker.claims.items()) if worker else ():
            if process in ("", by):
                run = self.runs[place[0]]
                task = run.branches[place[1]].tasks[place[2]]
                self._give_up(run, place, task)
                task.crashes += 1
                run.counters["recoveries"] += 1
                if task.crashes >= most:
                    self._failed(run, place[1], place[2])
                else:
                    self._requeue(run, place[1], place[2])
                back.add(place)
        if not process:
            self.workers.pop(id, None)
        return back

    # -- sending

    def move_due(self) -> int:
        ripe = sorted((at, "|".join(place).encode(), place) for place, at in self.due.items() if at <= self.now)
        for _, _, place in ripe:
            del self.due[place]
            self._requeue(self.runs[place[0]], place[1], place[2])
        return len(ripe)

    def resend(self, older: int) -> int:
        """Jobs that nobody claimed are sent again where no message waits; the others are looked at later."""
        old = sorted((at, "|".join(p).encode(), p) for p, at in self.queued.items() if at <= self.now - older)
        empty = {queue for queue, waiting in self.lists.items() if not waiting}
        sent = 0
        for _, _, place in old:
            run = self.runs[place[0]]
            self.queued[place] = self.now
            if run.relayed or run.queue in empty:
                self._send(run, place)
                sent += 1
                if run.relayed:
                    task = run.branches[place[1]].tasks[place[2]]
                    task.copies += 1
                    self.queued[place] += older * (2 ** min(task.copies, 8) - 1)
        return sent

    def return_job(self, job: Job) -> None:
        run = self.runs[job.run_id]
        task = run.branches[job.branch].tasks.get(job.task)
        if task is not None and task.state == "queued" and task.attempt == job.attempt:
            self._send(run, (job.run_id, job.branch, job.task))

    # -- pieces

    def _queue(self, run: Run, name: str, task: PlannedTask, attempt: int = 1) -> None:
        run.branches[name].tasks[task.key] = Task(attempt=attempt)
        self._send(run, (run.id, name, task.key))

    def _send(self, run: Run, place: Place) -> None:
        job = Job(*place, run.branches[place[1]].tasks[place[2]].attempt)
        self.queued[place] = self.now
        if run.relayed:
            self.outbox.add(job)
        else:
            self.lists[run.queue].insert(0, job)

    def _requeue(self, run: Run, name: str, key: str) -> None:
        task = run.branches[name].tasks[key]
        task.state = "queued" if run.goes_on(name) else "held"
        if task.state == "queued":
            self._send(run, (run.id, name, key))

    def _hand_over(self, run: Run, place: Place, task: Task, most: int) -> None:
        self._give_up(run, place, task)
        task.handed += 1
        if task.handed >= most:
            self._failed(run, place[1], place[2])
        else:
            self._requeue(run, place[1], place[2])

    def _give_up(self, run: Run, place: Place, task: Task) -> None:
        run.counters["in_doubt"] += task.begun
        del self.workers[task.worker].claims[place]
        task.token, task.worker, task.process, task.nonce, task.begun = None, "", "", "", 0
        task.copies = 0
        task.attempt += 1

    def _recall(self, run: Run, name: str) -> None:
        for key, task in run.branches[name].tasks.items():
            if task.state == "running":
                self._give_up(run, (run.id, name, key), task)
                task.state = "held"

    def _failed(self, run: Run, name: str, key: str) -> None:
        run.branches[name].tasks[key].state = "failed"
        run.branches[name].tasks[key].started = False
        self._checkpoint(run, name, "task_failed", key)
        if run.goes_on(name):
            self._checkpoint(run, name, "crew_kickoff_failed")
            self._finish(run, name, "failed")

    def _begin(self, run: Run, name: str, bundle: str | None = None) -> None:
        run.bundle = bundle or run.bundle
        if not run.live:
            self._use_bundle(run, +1)
        run.branches[name].status = "running"

    def _take_along(self, run: Run, parent: str, name: str, edited: Set[str]) -> None:
        """What was recorded by tasks in flight that begin on the new branch, and come after nothing that was edited."""
        there = run.branches[parent].journals
        for task in run.ready(name):
            if there.get(task.key) and edited.isdisjoint(run.plan.earlier(task.key)):
                run.branches[name].journals[task.key] = dict(there[task.key])

    def _finish(self, run: Run, name: str, status: str) -> None:
        run.branches[name].status = status
        if not run.live:
            self._use_bundle(run, -1)
        for key, task in run.branches[name].tasks.items():
            if task.state in ("queued", "delayed"):
                task.state = "held"
                self.queued.pop((run.id, name, key), None)
                self.due.pop((run.id, name, key), None)

    def _checkpoint(self, run: Run, name: str, trigger: str, task: str = "") -> None:
        if {"*", trigger} & run.triggers:
            branch = run.branches[name]
            branch.seq += trigger != "task_completed"
            branch.checkpoints.append(Checkpoint(branch.seq, trigger, task))

    def _use_bundle(self, run: Run, by: int) -> None:
        if run.bundle:
            self.bundles[run.bundle] += by

    # -- what the observer asks

    def waits(self, run: Run, name: str) -> dict[str, int]:
        return waits(part(run.plan, run.todo(name)), run.committed(name).keys())

    def fields_of(self, task: Task) -> dict[str, Any]:
        """What its hash is to say."""
        found: dict[str, Any] = {"state": task.state, "attempt": task.attempt}
        if task.token is not None:
            found |= {"token": task.token, "worker": task.worker, "process": task.process}
        found |= {name: n for name in ("crashes", "handed", "reached", "failures") if (n := getattr(task, name))}
        return found | ({"begun": f'[["step", "", "", {task.begun}, 0]]'} if task.begun else {})
