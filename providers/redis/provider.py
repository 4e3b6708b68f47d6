"""Checkpoints in Redis or Valkey. Each stores only what is new since its parent (`deltas`)."""

import contextlib
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr
from redis.exceptions import RedisError

from runner.core import fault_points
from runner.core.errors import StoreUnreachable
from runner.providers import inflight
from runner.providers.base import (
    BaseProvider,
    CheckpointInfo,
    CheckpointNotFound,
    CheckpointTorn,
    check_branch,
    check_keep,
    created_at,
    make_id,
)
from runner.providers.redis import connection, deltas, locations, outages, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.deltas import State
from runner.providers.redis.locations import RedisLocation

T = TypeVar("T")

PATIENCE = 5.0  #: seconds to wait for a Redis that is away
LEASE = 15.0  #: seconds that a run counts as in flight after its process's last heartbeat
_PAGE = 4_000_000  #: bytes to read at once: a script of Redis makes all others wait
_SLACK = 8_192  #: a line's entries may always be as long as this


@dataclass(frozen=True, slots=True)
class _Record:
    """A checkpoint as Redis lists it."""

    number: int
    digest: str
    size: int
    parent_id: str | None
    branch: str

    @classmethod
    def read(cls, text: bytes) -> "_Record":
        number, digest, size, _, parent, branch = text.decode().split("|", 5)
        return cls(int(number), digest, int(size), parent or None, branch)


@dataclass(frozen=True, slots=True)
class _Written:
    """A state that is in Redis, as its child is written against it."""

    number: int
    digest: str
    state: State
    size: int
    chain: int
    """Bytes of the entries that it is made of."""
    enough: int
    """The length of chain at which to see if one entry that stands alone would be much shorter."""


class RedisProvider(BaseProvider):
    """Keeps checkpoints in Redis or Valkey.

    A location is ``redis://host:port/db?prefix=NAME`` (``rediss://`` and ``unix://`` as well), or a prefix alone at
    ``url``, else at ``RUNNER_REDIS_URL``. A checkpoint is named ``LOCATION#ID``, without user and password.
    """

    provider_type: Literal["redis"] = "redis"
    url: SecretStr | None = Field(default=None, exclude=True)
    """Where locations are that name no server. Not stored with the provider."""

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store what is new in a state since its parent's. Returns ``LOCATION#ID``."""
        check_branch(branch)
        if parent_id is not None and "|" in parent_id:
            raise ValueError(f"Not a checkpoint id: {parent_id!r}")
        place = self._place(location)
        base = self._base(place, parent_id)
        while True:
            checkpoint_id = make_id(parent_id)
            written, answer = _put(place, checkpoint_id, branch, parent_id or "", data, base)
            if answer[0] == b"stored":
                break
            if answer[0] == b"missing":
                # The parent was pruned, or Redis lost it: this one stands alone.
                base = None
        fault_points.reached("checkpoint named, not told")
        _recent.add((place.url, place.home, checkpoint_id), written)
        return f"{place.shown}#{checkpoint_id}"

    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Remove the oldest checkpoints of a branch, but of no line in flight that is not ``head``'s, all at once."""
        check_keep(max_keep)
        check_branch(branch)
        place = self._place(location)
        removed = _run(place, "prune_states", branch=branch, max_keep=max_keep, head=head or "")
        return int(removed)

    def hold(self, location: str, instead_of: str | None = None) -> None:
        """Protect a checkpoint from pruning by a lease, which this process renews."""
        where, checkpoint_id = locations.split(location)
        _held.hold(self._place(where), checkpoint_id, instead_of)

    def release(self, location: str) -> None:
        """End the lease."""
        where, checkpoint_id = locations.split(location)
        _held.release(self._place(where), checkpoint_id)

    def extract_id(self, location: str) -> str:
        """Return the checkpoint's id: what follows the last ``#`` of its location."""
        return locations.split(location)[1]

    def from_checkpoint(self, location: str) -> str:
        """Read a state."""
        where, checkpoint_id = locations.split(location)
        place = self._place(where)
        record, entries = _entries(place, checkpoint_id)
        written = _rebuild(record, entries, f"{place.shown}#{checkpoint_id}")
        _recent.add((place.url, place.home, checkpoint_id), written)
        return written.state.text

    def find(self, location: str) -> CheckpointInfo:
        """What is stored of one checkpoint, by its own location. Raises `CheckpointNotFound`."""
        where, checkpoint_id = locations.split(location)
        found = next((info for info in self.checkpoints(where) if info.id == checkpoint_id), None)
        if found is None:
            raise CheckpointNotFound(f"Checkpoint not found: {locations.without_password(location)}")
        return found

    def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
        """What is stored, oldest first. ``size`` is that of the whole state, not of what is stored of it."""
        if branch is not None:
            check_branch(branch)
        place = self._place(location)
        found = _run(place, "list_states", branch=branch or "")
        listed: list[tuple[int, CheckpointInfo]] = []
        for checkpoint_id, text, whole in zip(found[::3], found[1::3], found[2::3], strict=True):
            one, name = _Record.read(text), checkpoint_id.decode()
            own = f"{place.shown}#{name}"
            info = CheckpointInfo(name, one.parent_id, one.branch, own, created_at(name), one.size, bool(whole))
            listed.append((one.number, info))
        return [info for _, info in sorted(listed, key=lambda pair: pair[0])]

    def _place(self, location: str) -> RedisLocation:
        return locations.parse_location(location, self.url.get_secret_value() if self.url else None)

    def _base(self, place: RedisLocation, parent_id: str | None) -> _Written | None:
        """The parent to write against: remembered, else read; None if there is none, or it cannot be read."""
        if parent_id is None:
            return None
        key = (place.url, place.home, parent_id)
        if (known := _recent.get(key)) is not None:
            return known
        try:
            record, entries = _entries(place, parent_id)
            return _rebuild(record, entries, parent_id)
        except (CheckpointNotFound, CheckpointTorn):
            return None


# -- writing and reading


def _put(
    place: RedisLocation, checkpoint_id: str, branch: str, parent_id: str, data: str, base: _Written | None
) -> tuple[_Written, list[bytes]]:
    """Store a state. Returns it with the script's answer, and is done again if the answer got lost."""
    parts = deltas.split(data)
    entry, state = deltas.encode(parts, base.state if base else State())
    chain, enough = (base.chain if base else 0) + len(entry), base.enough if base else 0
    if base is not None and chain > max(enough, _SLACK):
        # What was replaced is still in the chain. When that is half of it, start a new chain: its size stays bounded.
        alone, alone_state = deltas.encode(parts, State())
        enough = chain + chain // 4
        if chain > 2 * len(alone):
            base, entry, state, chain, enough = None, alone, alone_state, len(alone), 0
    digest = _digest(data)
    fault_points.reached("checkpoint begun, not whole")
    answer = _run(
        place,
        "put_state",
        id=checkpoint_id,
        branch=branch,
        parent=parent_id,
        digest=digest,
        size=len(data.encode()),
        entry=entry,
        base=base.number if base else 0,
        base_digest=base.digest if base else "",
        lease=int(LEASE * 1000) if inflight.marks_ahead() else 0,
    )
    number = int(answer[1]) if answer[0] == b"stored" else 0
    return _Written(number, digest, state, len(data), chain, enough), answer


def _entries(place: RedisLocation, checkpoint_id: str) -> tuple[_Record, list[bytes]]:
    """A checkpoint's record and entries, the one that stands alone first. Raises `CheckpointNotFound`."""
    entries: list[bytes] = []
    at = ""
    while True:
        found = _run(place, "read_state", id=checkpoint_id, limit=_PAGE, **{"from": at})
        if not found:
            raise CheckpointNotFound(f"Checkpoint not found: {place.shown}#{checkpoint_id}")
        entries += found[2:]
        at = found[1].decode()
        if at == "0":
            return _Record.read(found[0]), entries[::-1]


def _rebuild(record: _Record, entries: list[bytes], name: str) -> _Written:
    """Build the state from its entries. Raises `CheckpointTorn`."""
    state = State()
    try:
        for entry in entries:
            state = deltas.decode(entry, state)
    except ValueError as error:
        raise CheckpointTorn(f"Checkpoint is torn: {name} cannot be read: {error}") from None
    text = state.text
    if _digest(text) != record.digest:
        raise CheckpointTorn(f"Checkpoint is torn: {name} is not what was written; restore from an older one")
    return _Written(record.number, record.digest, state, len(text), sum(map(len, entries)), 0)


def _digest(data: str) -> str:
    return hashlib.blake2b(data.encode(), digest_size=8).hexdigest()


# -- the server


def _run(place: RedisLocation, script: str, **slots: Any) -> Any:
    """Run a script at a place. Raises `StoreUnreachable`, which names the server and not its password."""
    client = _client(place.url)
    return _asked(place.url, lambda: scripts.load(script)(client, home=place.home, **slots))


_away: set[str] = set()
"""Servers that did not answer the last time: a run that writes often does not wait for them each time."""


def _asked(url: str, call: Callable[[], T]) -> T:
    try:
        answer = outages.retry_while_unavailable(call, limit=0 if url in _away else PATIENCE, refused=_lasts)
    except (RedisError, OSError) as error:
        _away.add(url)
        raise StoreUnreachable(
            f"Redis at {locations.without_password(url)} cannot store or read checkpoints: {str(error).rstrip('. ')}"
        ) from None
    _away.discard(url)
    return answer


def _lasts(refusal: outages.NotNow) -> None:
    """Raise it, if it is for a key that was overwritten: where states are, none is removed."""
    if refusal.overwritten:
        raise refusal


@cache
def _client(url: str) -> Client:
    return connection.connect(url, name="runner-states", decode=False)


class _Held:
    """The checkpoints that runs of this process stand on, and the thread that renews their leases."""

    def __init__(self) -> None:
        self._places: dict[tuple[RedisLocation, str], None] = {}
        self._lock = threading.RLock()
        self._is_renewing = False

    def hold(self, place: RedisLocation, checkpoint_id: str, instead_of: str | None) -> None:
        """Take a lease instead of another."""
        with self._lock:
            self._places.pop((place, instead_of or ""), None)
            self._places[place, checkpoint_id] = None
            begins, self._is_renewing = not self._is_renewing, True
        if begins:  # first: where the store is away now, the lease is taken when it is back
            threading.Thread(target=self._renew, name="checkpoints in flight", daemon=True).start()
        _lease(place, checkpoint_id, instead_of or "")

    def release(self, place: RedisLocation, checkpoint_id: str) -> None:
        """Release the lease of one checkpoint."""
        with self._lock:
            known = self._places.pop((place, checkpoint_id), ()) is None
        if known:
            _lease(place, "", checkpoint_id)

    def _renew(self) -> None:
        while True:
            time.sleep(LEASE / 3)
            with self._lock:
                here = list(self._places)
                if not here:
                    self._is_renewing = False
                    return
            for place, checkpoint_id in here:
                with contextlib.suppress(StoreUnreachable):
                    _lease(place, checkpoint_id, "")
                    if (place, checkpoint_id) not in self._places:  # released meanwhile
                        _lease(place, "", checkpoint_id)

    def forget(self) -> None:
        """Forget the leases in a forked child, because they are the parent's."""
        self.__init__()  # type: ignore[misc]  # as new


def _lease(place: RedisLocation, checkpoint_id: str, instead_of: str) -> None:
    _run(place, "hold_state", id=checkpoint_id, instead_of=instead_of, lease=int(LEASE * 1000))


class _Recent:
    """The states written or read last, so that the next one is written without reading its parent."""

    def __init__(self, most: int, most_characters: int) -> None:
        self._most, self._most_characters = most, most_characters
        self._found: OrderedDict[tuple[str, str, str], _Written] = OrderedDict()
        self._characters = 0
        self._lock = threading.RLock()

    def get(self, key: tuple[str, str, str]) -> _Written | None:
        """Return a state, if it is remembered."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def add(self, key: tuple[str, str, str], written: _Written) -> None:
        """Remember a state, and forget the oldest; the newest one is always remembered."""
        with self._lock:
            old = self._found.pop(key, None)
            self._characters += written.size - (old.size if old else 0)
            self._found[key] = written
            while len(self._found) > 1 and (len(self._found) > self._most or self._characters > self._most_characters):
                self._characters -= self._found.popitem(last=False)[1].size

    def clear(self) -> None:
        """Forget all, and be usable in a forked child, whatever its parent was doing."""
        self.__init__(self._most, self._most_characters)  # type: ignore[misc]  # as new


_held = _Held()
os.register_at_fork(after_in_child=_held.forget)
_recent = _Recent(8, 64 << 20)
os.register_at_fork(after_in_child=_recent.clear)
