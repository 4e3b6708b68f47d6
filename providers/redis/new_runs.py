"""What the scripts that begin runs are given: fields in the order in which they are looked for, and whole messages."""

from collections.abc import Mapping
from typing import Any

from runner.core.jobs import queue_for
from runner.core.plan import Plan
from runner.providers.redis import envelope
from runner.providers.redis.protocol import PROTOCOL
from runner.providers.redis.scripts import flat, specifications

OWN = ("inputs", "beginning")  #: fields in which the runs of a batch differ
_NUMBERS = ("keep", "max_checkpoints")  #: fields with which scripts count
_FIRST = (
    *("bundle", "module", "attr", "adapter", "plan", "crew", "checkpoint_on", "batch", "branch", "live"),
    *("protocol", "events"),
)
"""Those that a claim and a commit look for. A field of a small hash is searched for from the start."""


_last: tuple[Plan, dict[str, str], str, dict[str, Any]] | None = None


def slots(plan: Plan, fields: Mapping[str, str], batch: str = "") -> dict[str, Any]:
    """Return what runs of a plan with these fields have in common, as ``create_run.lua`` says.

    It is made once for runs that follow each other, which are mostly of one crew.
    """
    global _last
    shared = {name: value for name, value in fields.items() if name not in OWN}
    if _last is not None and _last[0] is plan and _last[1] == shared and _last[2] == batch:
        return _last[3]
    found = _slots(plan, shared, batch)
    _last = plan, shared, batch, found
    return found


def _slots(plan: Plan, fields: Mapping[str, str], batch: str) -> dict[str, Any]:
    queue, crew, direct = fields["queue"], fields["crew"], bool(fields["envelope"])
    ready = plan.first
    every: dict[str, Any] = {
        **{name: value for name, value in fields.items() if name not in (*_NUMBERS, "envelope")},
        **({"batch": batch} if batch else {}),
        **{"status": "running", "branch": "main", "live": 1, "protocol": PROTOCOL, "events": 1},
        # Scripts of before would fill in an envelope: they put the job into the outbox instead.
        **{"tasks": len(plan.tasks), "envelope": ""},
        **({"direct": 1, "sends": len(ready)} if direct else {}),
    }
    return {
        "sha": fields["bundle"],
        "fields": flat({name: every.pop(name) for name in _FIRST if name in every} | every),
        **{name: fields[name] for name in _NUMBERS},
        "queue": queue,
        "direct": int(direct),
        "on": fields.get("checkpoint_on", ""),
        "digest": fields["plan"],
        "plan": plan.to_json(),
        "ready": specifications(ready),
        "tasks_left": len(plan.tasks),
        "messages": [
            part
            for copy, task in enumerate(ready if direct else (), 1)
            for part in envelope.first_message(task.key, crew, queue_for(queue, task.pool), copy)
        ],
    }
