"""Which of several servers, or parts of a cluster, a run lives on; checks that all agree on their number and order.

Servers have places, counted from 0: their order where they are named. Each stores ``PLACE/COUNT,COUNT``: its own place,
and how many servers there are now and were before. Who names them otherwise is refused: it would look for runs, and
for what was submitted with a key, at another place. More may be added at the end.

A Redis Cluster is as many of them as it had masters when it was first used, or as its URL asked for then. That stays:
its partitions move with their slots.
"""

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from runner.core.errors import UsageError
from runner.core.redaction import redact_url
from runner.providers.redis import address, keys
from runner.providers.redis.cluster import ranges, tags_for
from runner.providers.redis.connection import Client, reach
from runner.providers.redis.waiting_client import waiting

_OF_A_CLUSTER = f"{keys.home(keys.CLUSTER_TAG)}:partitions"


class Part(NamedTuple):
    """One server of ``many``."""

    place: int
    many: int


ALONE = Part(0, 1)


@lru_cache(maxsize=64)  # it does not change
def urls_of(url: str) -> tuple[str, ...]:
    """A URL for each partition of a Redis Cluster; of a single store, its own.

    Raises `StoreUnreachable`, and `UsageError` if it asks for another number of partitions than there are.
    """
    found = address.clustered(address.standard(url))
    if found is None or found.tag:
        return (url,)
    with waiting(url) as client:
        tags = reach(client, f"Redis at {redact_url(url)}", url, "--redis-url", partial(_tags, client, found)) or []
    if found.partitions not in (0, len(tags)):
        raise UsageError(
            f"{redact_url(url)}: this cluster has {len(tags)} partitions since it was first used, and keeps them; "
            "leave partitions= out of its URL"
        )
    return tuple(address.tagged(url, tag) for tag in tags)


def _tags(client: Client, found: address.Clustered) -> list[str]:
    """The tags of a cluster's partitions; they are chosen if they are not yet."""
    stored = client.get(_OF_A_CLUSTER)
    if stored is None:
        new = " ".join(tags_for(ranges(client.execute_command("CLUSTER", "SLOTS"), found.nodes[0]), found.partitions))
        stored = client.set(_OF_A_CLUSTER, new, nx=True, get=True) or new  # another may have chosen meanwhile
    return str(stored).split()


def place_of(run_id: str, count: int) -> int:
    """Return a run's place among so many servers, by highest random weight: one more server takes only its share."""
    return max(range(count), key=lambda place: hashlib.sha256(f"{place}|{run_id}".encode()).digest())


def places_of(run_id: str, counts: Collection[int]) -> list[int]:
    """Where a run may live, first where it is created now; ``counts`` is how many servers there ever were."""
    return list(dict.fromkeys(place_of(run_id, count) for count in sorted(counts, reverse=True)))


def confirm(client: Client, url: str, part: Part) -> tuple[int, ...]:
    """How many servers there ever were, now included; empty if this one does not know (`settle`). One round trip.

    Raises `UsageError` if it is not that one of so many.
    """
    known = _known(client)
    if known is None:
        return (1,) if part.many == 1 else ()
    place, counts = known
    if place != part.place or max(counts) > part.many:
        named = f"as server {part.place + 1} of {part.many}" if part.many > 1 else "alone"
        raise UsageError(
            f"Redis at {redact_url(url)} is server {place + 1} of {max(counts)}, and is named {named}: name all of "
            "them, in the same order everywhere, with commas between them"
        )
    return counts if max(counts) == part.many else ()


def settle(servers: Sequence[tuple[str, Client]]) -> tuple[int, ...]:
    """Have each of these servers know its place among them. Returns how many there ever were.

    Raises `UsageError` if one of them has another place, or runs of its own that would not be looked for there.
    """
    count = len(servers)
    counts, new = {count}, set[int]()
    for place, (url, client) in enumerate(servers):
        confirm(client, url, Part(place, count))
        known = _known(client)
        if known is not None:
            counts.update(known[1])
            continue
        new.add(place)
        if client.exists(keys.key("runs_key", home=keys.home_of(client))):
            if place:
                raise UsageError(f"Redis at {redact_url(url)} has runs of its own: name it as the first of the servers")
            counts.add(1)
    found = tuple(sorted(counts))
    for place, (url, client) in enumerate(servers):
        if not client.set(_key(client), f"{place}/{','.join(map(str, found))}", nx=place in new):
            confirm(client, url, Part(place, count))  # it is named twice, or by another program, too
    return found


def _known(client: Client) -> tuple[int, tuple[int, ...]] | None:
    place, _, counts = (client.get(_key(client)) or "").partition("/")
    return (int(place), tuple(map(int, counts.split(",")))) if counts else None


def _key(client: Client) -> str:
    return keys.key("partition_key", home=keys.home_of(client))
