"""Removes the keys of a store that were overwritten with another type: they count as deleted from then on.

The server refuses what is asked of such a key (``WRONGTYPE``), and does not say which key it is. So who is refused
looks at all keys of the store, one process at a time, and asks again; others wait meanwhile, as for any refusal that
passes. What only listed runs is made again; what is gone of a run ``check_runs.lua`` finds; and what the workers had
acknowledged of it they miss, and count (`rewound`).
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from redis.exceptions import RedisError

from runner.core import waiting
from runner.core.backoff import jittered
from runner.providers.redis import keys, scripts

log = logging.getLogger(__name__)

AT_ONCE = 1000  #: keys that are looked at in one round trip
PAUSE_MS = 1000  #: between two looks that find nothing, and how long a process that dies keeps others from looking
LOOKING, LOOKED = "1", ""  #: what is stored while a process looks, and after it has found nothing
WAIT = 0.1  #: seconds until it is asked again whether another one still does
_QUEUE = re.compile(r"runner:[pt]\d+:(\{p[\d.]+\})?")
_INDEXES = ("runs_key", "active_key", "expiring_key")
"""Those that list runs, and that nothing else makes again."""


def remove(client: Any, home: str, *, waits: bool = False) -> bool:
    """Remove them. Returns whether there were any: not where the server refuses that, too, or another process looks.

    ``waits``: in a large store that takes long; it is waited for, and what was asked is to be asked again then.
    """
    mending = keys.key("mending_key", home=home)
    try:
        if not client.set(mending, LOOKING, nx=True, px=PAUSE_MS):
            if client.pttl(mending) == -1:  # it is none of ours
                client.delete(mending)
            return waits and _others_looked(client, mending)
        runs, removed = list[str](), set[str]()
        for some in _parts(client.scan_iter(match="runner:*", count=AT_ONCE)):
            client.pexpire(mending, PAUSE_MS)
            removed |= _remove(client, home, some, runs)
        if removed & {keys.key(index, home=home) for index in _INDEXES}:
            for some in _parts(runs):
                client.pexpire(mending, PAUSE_MS)
                scripts.load("relist").at(client, home=home, ids=json.dumps(some))
        if removed:
            client.delete(mending)
        else:
            client.set(mending, LOOKED, xx=True, px=PAUSE_MS)
        return bool(removed)
    except (RedisError, OSError) as error:
        log.warning("keys that hold another type could not be looked for: %s", error)
        return False


def _others_looked(client: Any, mending: str) -> bool:
    """Wait until another process has looked. Returns whether one was at that."""
    found = False
    while client.strlen(mending):
        found = True
        waiting.sleep(jittered(WAIT))
    return found


def _remove(client: Any, home: str, names: list[str], runs: list[str]) -> set[str]:
    """Remove those of these keys. Adds to ``runs`` those whose own hash is among the others."""
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
    misfits = list[tuple[str, str]]()
    for name, have in zip(names, pipe.execute(), strict=True):
        due, run = _expected(name, home)
        if due and have not in (due, "none"):
            misfits.append((name, due))
        elif run:
            runs.append(run)
    removed = scripts.load("mend")(client, home=home, misfits=json.dumps(misfits)) if misfits else []
    for name, had, due in zip(removed[::3], removed[1::3], removed[2::3], strict=True):
        log.error("key %s held a %s instead of a %s: removed, so it counts as deleted", name, had, due)
    return set(removed[::3])


def _expected(name: str, home: str) -> tuple[str, str]:
    """The type that a key of this store is to be of, "" for any other key; and the run whose own hash it is."""
    if queue := _QUEUE.match(name):
        return "list" if keys.home((queue[1] or "{p0}")[1:-1]) == home else "", ""
    for of, pattern in keys.patterns().items() if name.startswith(f"{home}:") else ():
        if match := pattern.fullmatch(name):
            return keys.KEYS[of][0], match["run_id"] if of == "run_key" else ""
    return "", ""


def _parts(every: Iterable[str]) -> Iterator[list[str]]:
    left = iter(every)
    while some := list(islice(left, AT_ONCE)):
        yield some
