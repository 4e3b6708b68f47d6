"""Idempotency of model calls: matches each call to its recorded position in the journal. Pure.

A call is identified by the hash of its request, and by its position: the enclosing step. Among equal requests at the
same position, the first call gets the first recorded answer, and so on. So a call that failed and was repeated takes no
slot from others. ``prefix@HASH#k:n`` is the k-th call with that request, and was the n-th call at that position.

A record may begin with the call's hash chain, by which the hash of its request is found without building the request.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_CALL = re.compile(r"@[0-9a-f]{32}#\d+:\d+$")
_CHAIN = re.compile(r'\{"chain": "([0-9a-f]{32})"')
_KEY = re.compile(rf"(?:.*/)?{_CALL.pattern}", re.DOTALL)


def is_call(key: str) -> bool:
    """Whether the record under a key is a model call's."""
    return _CALL.search(key) is not None


class CallSlot(NamedTuple):
    """The slot of one call. ``number``: its index among the calls at its position, within ``prefix``."""

    key: str
    prefix: str
    number: int
    recorded: bool


class CallSlots:
    """The calls that have these ``keys``, and which of them were matched. Some have no answer that is recorded."""

    def __init__(self, keys: Iterable[str], recorded: Mapping[str, str]) -> None:
        self._waiting: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self._at: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._highest: defaultdict[str, int] = defaultdict(int)
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._inside: defaultdict[str, list[str]] = defaultdict(list)
        self._recorded = recorded
        self._chains: dict[tuple[str, str], str] = {}
        for key in dict.fromkeys(keys):
            if _KEY.fullmatch(key):
                self._put(key)
                if chain := _CHAIN.match(recorded.get(key, "")):
                    self._link(chain[1], *key.rpartition("#")[0].rsplit("@", 1))
            if key in recorded and _CALL.search(key):
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
        """Return the hash of the request with this chain, and the next call's record key; "" if there is none."""
        digest = self._chains.get((prefix, chain), "")
        waiting = self._waiting.get(f"{prefix}@{digest}") if digest else None
        return digest, waiting[0][1] if waiting else ""

    def reserve(self, prefix: str, digest: str, *, unattributed: bool = False) -> CallSlot:
        """Reserve the slot of the next call with this request.

        The steps that enclose an ``unattributed`` call are unknown: it may be any of those whose result is not
        recorded.
        """
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

    def is_waiting(self, key: str) -> bool:
        """Whether this recorded call has not been made again yet."""
        return any(key == one for _, one in self._waiting.get(key.rpartition("#")[0], ()))

    def _request(self, prefix: str, digest: str, *, unattributed: bool) -> str:
        request = f"{prefix}@{digest}"
        if unattributed and not self._waiting.get(request):
            others = (r for r, keys in self._waiting.items() if keys and r.endswith(f"@{digest}"))
            return next((other for other in others if not self._is_skipped(other)), request)
        return request

    def _is_skipped(self, request: str) -> bool:
        """Whether it was made in a step with a result, which is replayed without its calls."""
        return any(char == "/" and request[:end] in self._recorded for end, char in enumerate(request))

    def release(self, place: CallSlot) -> None:
        """Release the slot of a failed call, if it was the latest one there, so that the next call takes it."""
        if self._numbers[place.prefix] == place.number:
            self._numbers[place.prefix] -= 1

    def position(self) -> dict[str, int]:
        """Return how many calls were made so far, by enclosing step."""
        return {f"@{prefix}": number for prefix, number in self._numbers.items()}

    def fast_forward(self, position: Mapping[str, int]) -> dict[str, int]:
        """Skip the calls up to this position. Returns the parts of the position that are not model calls."""
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
        """Return the calls that were recorded inside a step, including those of a nested kickoff."""
        return self._inside.get(step, [])

    def diverged(self, place: CallSlot) -> bool:
        """Whether another request was recorded at this position and never made again."""
        return bool(self._at.get((place.prefix, place.number)))
