"""Creates a fork: where it leaves its parent branch, in one script."""

import json
from collections.abc import Iterable, Mapping, Set
from typing import Any

from runner.core.errors import no_run
from runner.core.plan.branching import pack, starts, visible
from runner.core.stored_output import unpack_output
from runner.providers.records import Position, Regrown, committed_record
from runner.providers.redis import history, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.history import Ancestor
from runner.providers.redis.runs import Runs
from runner.providers.redis.scripts import specifications


def position(
    client: Client,
    run_id: str,
    *,
    checkpoint: str | None = None,
    branch: str | None = None,
    outputs: Iterable[str] = (),
) -> Position:
    """Return the position of a checkpoint, or of a branch's head: by default the current one's. Raises `NotFound`.

    It comes with those of the ``outputs`` that are committed there, in one round trip, however many branches there are.
    """
    wanted = list(outputs)
    state, *found = scripts.load("find_position").at(
        client, run_id, name=branch or "", checkpoint=checkpoint or "", tasks=json.dumps(wanted, ensure_ascii=False)
    )
    if state == "no checkpoint":
        whole = Runs(client).find_checkpoint(run_id, str(checkpoint)).id
        return position(client, run_id, checkpoint=whole, outputs=wanted)
    if state != "there":
        Runs(client).branch(run_id, branch or "")  # raises, with the names of those that are there
        raise no_run(run_id)
    (_, digest, bundle, queue, inputs, shapes), text, newest, seq, *found = found
    plan = history.plan_from(text, run_id, bundle)
    lines = [
        Ancestor(name, dict(zip(fields[::2], fields[1::2], strict=True)), commits) for name, fields, commits, _ in found
    ]
    seen = visible([one.line(plan, history.in_order(one, seq)) for one in lines], seq)
    stored = {name: dict(zip(wanted, texts, strict=True)) for name, _, _, texts in found}
    fields = lines[0].fields
    overrides = json.loads(fields.get("inputs", "{}"))
    return Position(
        run_id=run_id,
        branch=lines[0].name,
        seq=seq,
        checkpoint=checkpoint or fields.get("head", fields.get("from", "")),
        plan=plan,
        digest=digest or "",
        bundle=bundle or "",
        queue=queue or "",
        inputs=json.loads(inputs or "{}") | overrides,
        overrides=overrides,
        done=seen if plan.grows else {task: one for task, one in seen.items() if task in plan.by_key},
        outputs={task: committed_record(unpack_output(stored[seen[task][0]][task])) for task in wanted if task in seen},
        shapes=shapes or "",
        newest_event=newest,
        named=bool(checkpoint),
    )


def create(
    client: Client,
    where: Position,
    name: str,
    *,
    rerun: frozenset[str],
    kept: Set[str],
    edits: Mapping[str, str],
    overrides: Mapping[str, Any],
    regrown: Regrown | None = None,
) -> str:
    """Create the branch ``name`` there, to do ``rerun``, of which ``kept`` begin from what they have recorded there.

    ``edits`` are outputs as they are stored, by task. Where the plan grows, ``regrown`` says what
    is to be done instead.

    Returns "forked", "gone", "changed", "taken" or "no bundle".
    """
    ready = regrown.ready if regrown else starts(where.plan, rerun)
    fields: dict[str, Any] = {"seq": where.seq, "parent_seq": where.seq}
    if regrown is None:
        fields["todo"] = pack(where.plan, rerun)
    else:
        if regrown.void:
            fields["void"] = json.dumps(sorted(regrown.void), ensure_ascii=False)
        if regrown.laid:
            fields["laid"] = json.dumps(regrown.laid, ensure_ascii=False, sort_keys=True)
    if where.checkpoint:
        fields["from"] = where.checkpoint
    if overrides:
        fields["inputs"] = json.dumps(overrides, ensure_ascii=False, sort_keys=True)
    if edits:
        fields["edits"] = json.dumps(list(edits), ensure_ascii=False)
    return str(
        scripts.load("fork").at(
            client,
            *(where.run_id, name),
            of=where.bundle,
            fields=json.dumps(fields, ensure_ascii=False),
            parent=where.branch,
            expected_plan=where.digest,
            edits=json.dumps([[task, output[1:]] for task, output in edits.items()], ensure_ascii=False),
            ready=specifications(ready, needs=0),
            kept=json.dumps([task.key for task in ready if task.key in kept], ensure_ascii=False),
            upto=where.seq if where.named else "",
            tasks_left=len(regrown.ready if regrown else rerun),
        )
    )
