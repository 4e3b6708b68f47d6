"""Idempotency of model calls: matches each call to its recorded position in the journal. Pure.

A call is known by the hash of its request, and by where it is made: inside which step. Of the same request at the same
place, the first call is answered with what was recorded first, and so on. So a call that failed and was made again
takes no place from others. ``prefix@HASH#k:n`` is the k-th call with that request, and was the n-th call at that place.

What is recorded of a call may begin with its chain: by that, the hash of its request is found without the request.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

_CALL = re.compile(r"@[0-9a-f]{32}#\d+:\d+$")
_CHAIN = re.compile(r'\{"chain": "([0-9a-f]{32})"')
_KEY = re.compile(rf"(?:.*/)?{_CALL.pattern}", re.DOTALL)


def is_call(key: str) -> bool:
    """Whether what is recorded under a key is a call of a model."""
    return _CALL.search(key) is not None


class CallSlot(NamedTuple):
    """Where one call stands. ``number``: its index among the calls at its place, within ``prefix``."""

    key: str
    prefix: str
    number: int
    recorded: bool


class CallSlots:
    """Which calls are recorded, and which of them were given out."""

    def __init__(self, recorded: Mapping[str, str]) -> None:
        self._waiting: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self._at: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._highest: defaultdict[str, int] = defaultdict(int)
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._inside: defaultdict[str, list[str]] = defaultdict(list)
        self._chains: dict[tuple[str, str], str] = {}
        for key, text in recorded.items():
            if _KEY.fullmatch(key):
                self._put(key)
                if chain := _CHAIN.match(text):
                    self._link(chain[1], *key.rpartition("#")[0].rsplit("@", 1))
            if _CALL.search(key):
                for end, char in enumerate(key):
                    if char == "/":
                        self._inside[key[:end]].append(key)
        for waiting in self._waiting.values():
            waiting.sort()

    def _put(self, key: str) -> None:
        request, _, rest = key.rpartition("#")
        count, _, number = rest.partition(":")
        self._waiting[request].append((int(count), key))
        self._at[request.rpartition("@")[0], int(number)].add(key)
        self._highest[request] = max(self._highest[request], int(count))

    def _link(self, chain: str, prefix: str, digest: str) -> None:
        if self._chains.setdefault((prefix, chain), digest) != digest:
            self._chains[prefix, chain] = ""  # it does not say which

    def find(self, prefix: str, chain: str) -> tuple[str, str]:
        """The hash of the request that has this chain, and the key of the record of the next call with it; "" if there
        is none."""
        digest = self._chains.get((prefix, chain), "")
        waiting = self._waiting.get(f"{prefix}@{digest}") if digest else None
        return digest, waiting[0][1] if waiting else ""

    def reserve(self, prefix: str, digest: str, *, unattributed: bool = False) -> CallSlot:
        """Reserve the slot of the next call with this request; what encloses an ``unattributed`` one is unknown."""
        self._numbers[prefix] = number = self._numbers[prefix] + 1
        request = self._request(prefix, digest, unattributed=True) if unattributed else f"{prefix}@{digest}"
        waiting = self._waiting.get(request)
        if waiting:
            _, key = waiting.pop(0)
            self._at[request.rpartition("@")[0], int(key.rpartition(":")[2])].discard(key)
            return CallSlot(key, prefix, number, recorded=True)
        self._highest[request] += 1
        return CallSlot(f"{request}#{self._highest[request]}:{number}", prefix, number, recorded=False)

    def waits(self, prefix: str, digest: str, *, unattributed: bool = False) -> bool:
        """Whether the next call with this request is recorded."""
        return bool(self._waiting.get(self._request(prefix, digest, unattributed=unattributed)))

    def _request(self, prefix: str, digest: str, *, unattributed: bool) -> str:
        request = f"{prefix}@{digest}"
        if unattributed and not self._waiting.get(request):
            return next((r for r, keys in self._waiting.items() if keys and r.endswith(f"@{digest}")), request)
        return request

    def release(self, place: CallSlot) -> None:
        """Release the slot of a call that failed, if it was the latest one there: the next call takes it."""
        if self._numbers[place.prefix] == place.number:
            self._numbers[place.prefix] -= 1

    def position(self) -> dict[str, int]:
        """How many calls were made so far, inside of what."""
        return {f"@{prefix}": number for prefix, number in self._numbers.items()}

    def fast_forward(self, position: Mapping[str, int]) -> dict[str, int]:
        """Skip the calls up to this position. Returns the parts of it that are no calls of models."""
        rest = {}
        for name, number in position.items():
            if not name.startswith("@") or not (name == "@" or name.endswith("/")):
                rest[name] = number
                continue
            prefix = name[1:]
            self._numbers[prefix] = number
            made = {key for (at, n), keys in self._at.items() if at == prefix and n <= number for key in keys}
            for request, waiting in self._waiting.items():
                self._waiting[request] = [one for one in waiting if one[1] not in made]
            for key in made:
                self._at[prefix, int(key.rpartition(":")[2])].discard(key)
        return rest

    def inside(self, step: str) -> list[str]:
        """The calls that were recorded inside of a step, also by a kickoff in it."""
        return self._inside.get(step, [])

    def diverged(self, place: CallSlot) -> bool:
        """Whether another request was recorded where this one was made, and that was never asked for."""
        return bool(self._at.get((place.prefix, place.number)))
