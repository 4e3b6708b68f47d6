"""Resumes a run, with its code as it was submitted or as it is now."""

import json
import secrets
import socket
from pathlib import Path

from runner.bundles import bundle
from runner.bundles.target import parse_target
from runner.client import flow_position
from runner.client.handle import ClientPort, RunHandle
from runner.client.submission import code_digest, prepare
from runner.core import settings
from runner.core.errors import Conflict, UsageError
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.providers.records import RunRecord
from runner.providers.redis.dynamic_plan import GrowingBranch


def resume(
    client: ClientPort,
    run_id: str,
    *,
    checkpoint: str | None,
    branch: str | None,
    accept_code_change: bool,
    keep_code: bool,
) -> RunHandle:
    """Resume a branch of a run. See `Client.resume`."""
    check_code_choice(accept_code_change=accept_code_change, keep_code=keep_code)
    runs = client.store.runs
    for _ in range(20):
        run = runs.get(run_id)
        start = runs.find_checkpoint(run_id, checkpoint) if checkpoint else None
        if start is not None and branch not in (None, start.branch):
            raise Conflict(
                f"checkpoint {start.id} is on branch {start.branch}, not on {branch}: "
                f"`runner fork {run_id} --checkpoint {start.id} --branch {branch}` starts another branch there"
            )
        after = runs.last_event(run_id)
        name = start.branch if start else branch or run.branch
        if start is not None and start.seq >= runs.last_commit(run_id, name):
            start = None  # nothing was committed after it: the branch itself resumes
        status = run.status
        if start is not None:
            if branch is not None:
                raise Conflict(
                    f"branch {branch} of run {run_id} has advanced past checkpoint {start.id}: `runner fork "
                    f"{run_id} --checkpoint {start.id}` starts another branch there, `runner resume {run_id} "
                    f"--branch {branch}` resumes from its head"
                )
            name = f"resume/{start.id}_{secrets.token_hex(3)}"
        elif name != run.branch:
            status = runs.status(run_id, name)
        if status is RunStatus.running:
            what, which = (f"branch {name} of", f" --branch {name}") if name != run.branch and not start else ("", "")
            raise Conflict(f"{what} run {run_id} is running: `runner wait {run_id}{which}` waits for it".lstrip())
        if status is RunStatus.waiting and start is None:
            raise Conflict(f"run {run_id} is awaiting input: `runner answer {run_id} --text ...` resumes it")
        known = runs.plan(run_id)
        done = runs.committed(run_id, name if start is None else start.branch, start.seq if start else None)
        if status is RunStatus.completed and start is None and (known.grows or len(done) == len(known.tasks)):
            return RunHandle(client, run_id, created=False, branch=name)
        fields, plan = _code_now(client, run, accept_code_change, keep_code)
        pending = None
        if (growing := plan or known).grows:
            line = GrowingBranch(client.store.client, run_id, start.branch if start else name)
            upto = start.seq if start else None
            position = flow_position.position_at(growing, line, upto, replanned=plan is not None)
            pending = flow_position.ready(growing, position)
        answer = runs.resume(run, name, start=start, fields=fields, plan=plan, pending=pending)
        if answer == "resumed":
            client.ensure_worker(run.queue)
            beside = runs.get(run_id).branch != name
            moved = not beside and name != run.branch
            notes = (f"the current branch of run {run_id} is now {name}; it was {run.branch}",) if moved else ()
            return RunHandle(client, run_id, branch=name if beside else None, notes=notes, _from=after)
        if answer == "busy":
            raise Conflict(
                f"a branch of run {run_id} is running on the old code: wait for it, or cancel it with "
                f"`runner cancel {run_id} --branch NAME`, then resume with the new code"
            )
        if answer == "no bundle":
            raise Conflict(f"the code of run {run_id} is no longer in the store: submit the crew again")
    raise Conflict(f"run {run_id} kept changing while it was being resumed: try again")


def check_code_choice(*, accept_code_change: bool, keep_code: bool) -> None:
    """Raise `UsageError` if a run is to be resumed both with its new code and with its old."""
    if accept_code_change and keep_code:
        raise UsageError("--accept-code-change resumes with the new code, --keep-code with the old: give one of them")


def _code_now(client: ClientPort, run: RunRecord, accept: bool, keep: bool) -> tuple[dict[str, str], Plan | None]:
    """Return the fields to update if the crew's files have changed since, and the change is accepted."""
    runs = client.store.runs
    path = runs.field(run.id, "target")
    host, _, target = path.partition(":")
    if keep or (not accept and (host != socket.gethostname() or not Path(target.split("::")[0]).exists())):
        return {}, None
    file, _, attr = target.partition("::")
    if accept:
        prepared = prepare(
            f"{file}:{attr}" if attr else file,
            inputs=json.loads(runs.field(run.id, "inputs")),
            calls=client.calls_at_import(run.bundle),
        )
        code = {"environment": prepared.environment, **prepared.names_of_code()}
        if prepared.packed.sha256 == run.bundle:
            same = all(runs.field(run.id, name) == value for name, value in code.items())
            return {} if same else code, None
        if not runs.put_bundle(prepared.packed.sha256, None):
            runs.put_bundle(prepared.packed.sha256, prepared.packed.data)
        return {
            "bundle": prepared.packed.sha256,
            **code,
            "code": prepared.code,
            "plan": prepared.plan.digest,
            "shapes": prepared.shapes,
            "result_task": prepared.plan.result,
        }, prepared.plan
    now = bundle.pack(parse_target(file), limit=settings.bundle_limit())
    if code_digest(now) != runs.field(run.id, "code"):
        raise Conflict(
            f"the code of {file}, or a file beside it, has changed since run {run.id} was submitted: "
            "--accept-code-change resumes with the new code, --keep-code with the old"
        )
    return {}, None
