"""Ids of runs and batches: what they look like, and those that a key gives."""

import hashlib
import re

from runner.core.errors import UsageError
from runner.core.plain_text import why_no_name

RUN_ID = re.compile(r"r-[0-9a-f]{12}")
BATCH_ID = re.compile(r"b-[0-9a-f]{12}")
LONGEST_ID = 200  #: characters of a key that a run is submitted with


def check_key(id: str) -> None:
    """Raise `UsageError` unless a run or a batch may be submitted with this key."""
    if not id.strip():
        raise UsageError("--id must not be empty")
    if why := why_no_name(id):
        raise UsageError(f"--id {id[:80]!r} {why}")
    if len(id) > LONGEST_ID:
        raise UsageError(f"--id has {len(id)} characters: at most {LONGEST_ID} are allowed")


def run_id_for(id: str) -> str:
    """Return the run id of a submission with this key (``submit(id=...)``). Raises `UsageError`."""
    check_key(id)
    return "r-" + hashlib.sha256(id.encode()).hexdigest()[:12]


def batch_id_for(key: str) -> str:
    """Return the id of the batch with this key."""
    return "b-" + hashlib.sha256(key.encode()).hexdigest()[:12]
