"""The Celery message of a job in the format of kombu 5.7 on Redis, as a template for scripts.

The committing script itself pushes the message, so committing and sending are one atomic step. A message carries ids
only. `send.lua` fills the places in; a contract test lets a stock Celery worker consume what comes out.
"""

import base64
import json
import re
from functools import cache
from typing import Any, NamedTuple

from runner.core.jobs import Job

JOB = "runner.job"
"""The name under which the worker registers the one Celery task there is."""


DIRECT = "direct"
"""What a run is created with as its envelope where the scripts push its messages; "" where they go to the outbox."""

COMPACT = (",", ":")

_MARK = re.compile(r"@([A-Z]+)@")


class Message(NamedTuple):
    """A job as Celery sees it: what it carries, its id, and the name that Flower shows."""

    arguments: dict[str, Any]
    id: str
    name: str


def message_of(job: Job, crew: str) -> Message:
    """The message that a job of this crew would come with."""
    ids = job.run_id, job.branch, job.task, job.attempt
    return Message(job_arguments(*ids), job.message_id, f"{crew}.{job.task}")


def read_message(text: str) -> Message:
    """A message out of a queue. Raises ValueError for what is not one of ours."""
    try:
        return _read(json.loads(text))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError("it is not a job's message") from error


def _read(found: Any) -> Message:
    headers, body = found["headers"], found["body"]
    if found["properties"].get("body_encoding") == "base64":  # sent by kombu
        body = base64.b64decode(body)
    if headers["task"] != JOB:
        raise ValueError(headers["task"])
    arguments = json.loads(body)[1]
    return Message(
        job_arguments(arguments["run"], arguments["branch"], arguments["task"], arguments["attempt"]),
        headers["id"],
        headers.get("shadow") or JOB,
    )


def job_arguments(run_id: str, branch: str, task: str, attempt: int) -> dict[str, Any]:
    """Return what a job carries: ids, and nothing else."""
    return {"run": run_id, "branch": branch, "task": task, "attempt": attempt}


def argument_text(run: str, branch: str, task: str, attempt: int | str) -> str:
    """Return the arguments of a job as Flower shows them."""
    return f"{{'run': '{run}', 'branch': '{branch}', 'task': '{task}', 'attempt': {attempt}}}"


PARTS = 5  #: of a `first_message`


def first_message(task: str, crew: str, queue: str, copy: int) -> tuple[str, ...]:
    """Return the message of the first attempt at a task on main, as the parts between which the run's id stands.

    It is the ``copy``-th that its run sends.
    """
    branch, name = "main", _quoted(task)
    values = {
        "BRANCH": branch, "BODYBRANCH": branch, "TASK": name, "BODYTASK": _quoted(name), "CREW": _quoted(crew),
        "QUEUE": _quoted(queue), "ATTEMPT": "1", "COPY": str(copy),
    }  # fmt: skip
    parts = _template().replace("@ID@", f"@RUN@.{branch}.@TASK@.1").split("@RUN@")
    return tuple(_MARK.sub(lambda mark: values[mark[1]], part) for part in parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def lua() -> str:
    """The message as an expression of the script that sends it, with ``values`` in it."""
    text = _template().replace("%", "%%")
    values = ",".join(f"values.{mark}" for mark in _MARK.findall(text))
    return f"string.format([=[{_MARK.sub('%s', text)}]=],{values})"


@cache
def _template() -> str:
    """The message with marks.

    ``BODY...`` stand inside a JSON text that is itself a JSON string. ``shadow`` is the name that Flower shows. ``ID``
    is the job's.
    """
    body = json.dumps(
        [[], {"run": "@RUN@", "branch": "@BODYBRANCH@", "task": "@BODYTASK@", "attempt": "@ATTEMPT@"}, {}],
        separators=COMPACT,
    ).replace('"@ATTEMPT@"', "@ATTEMPT@")
    # What is left out, a worker takes to be none: a message is half of what a fork costs.
    message = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "task": JOB,
            "id": "@ID@",
            "shadow": "@CREW@.@TASK@",
            "argsrepr": "()",
            "kwargsrepr": argument_text("@RUN@", "@BRANCH@", "@TASK@", "@ATTEMPT@"),
            "ignore_result": True,
        },
        "properties": {
            "delivery_info": {"exchange": "", "routing_key": "@QUEUE@"},
            "priority": 0,
            # Unique per copy: kombu files unacknowledged messages under it.
            "delivery_tag": "@RUN@.@COPY@",
        },
    }
    return json.dumps(message, separators=COMPACT)
