"""A Redis Cluster as a store of several partitions: which slot each has, and which node serves it now.

A partition is whole in one slot: all of its keys carry one tag, its queues and the broker's own keys included. So who
works with it speaks with one server, on plain connections; each asks, when it is opened, which master has the slot. An
answer that another has it by now, or that the cluster is down, leads to a new connection (`patience.MOVED`).

While a slot moves from one master to another its partition waits. The old master refuses a script that names a key
which is not there, as a home never is; the others look at each key that they may write before their first write
(`scripts`), and fail at one that has gone ahead. The new master is asked for nothing before it has all.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, SSLConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ConnectionError, MovedError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from runner.providers.redis.address import Clustered
from runner.providers.redis.outages import NotNow, brief, forbidden, not_now

SLOTS = 16_384
ASKED = 2.0  #: seconds that a node has to say who has a slot: there are others
_LOGIN = ("username", "password")
NOT_HERE = "access a non local key"

Node = tuple[str, int]


class SlotRange(NamedTuple):
    """Slots from ``first`` to ``last``, and the master that has them."""

    first: int
    last: int
    master: Node


class NoSlotOwner(ConnectionError):
    """None of the nodes says who has the slot, for now."""


class Moved(NotNow):
    """Another master has the slot by now: a client finds it at once, on a new connection."""


FOLLOW = Retry(NoBackoff(), 1, supported_errors=(Moved,))


class Topology:
    """Who has which slot of a cluster, as its nodes say it. They are known from its URL, and from each other."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._named, self._nodes = tuple(nodes), list(nodes)
        self._silent: set[Node] = set()

    def slots(self, ask: Callable[[Node], Any]) -> list[SlotRange]:
        """All slots, as some node says; ``ask`` asks one. Raises `NoSlotOwner` if none answers."""
        silent: dict[Node, str] = {}
        nodes = random.sample(self._nodes, len(self._nodes))  # one that is cut off may be wrong, and not twice
        for node in sorted(nodes, key=self._silent.__contains__):
            try:
                answer = ask(node)
            except (ConnectionError, TimeoutError, NotNow, OSError) as error:
                if forbidden(refusal := not_now(error)):
                    raise refusal or error from None
                silent[node] = brief(error)
                self._silent.add(node)
                continue
            self._silent.discard(node)
            found = ranges(answer, node)
            known = [one.master for one in found] + [_node(one, node) for line in answer for one in line[3:]]
            self._nodes = list(dict.fromkeys([*self._named, *known]))
            return found
        why = "; ".join(f"{host}:{port}: {text}" for (host, port), text in silent.items())
        raise NoSlotOwner(f"no node of the cluster answers ({why})")

    def owner(self, slot: int, ask: Callable[[Node], Any]) -> Node:
        """Return the master that has a slot. Raises `NoSlotOwner`."""
        for one in self.slots(ask):
            if one.first <= slot <= one.last:
                return one.master
        raise NoSlotOwner(f"no node of the cluster has slot {slot}")


@lru_cache(maxsize=64)
def topology(nodes: tuple[Node, ...]) -> Topology:
    """That of the cluster with these nodes: one in a process."""
    return Topology(nodes)


class _ToSlotOwner:
    """Connects to whichever master has the slot of a tag when it does."""

    def __init__(self, *, nodes: tuple[Node, ...], tag: str, **options: Any) -> None:
        self._of, self._slot = topology(nodes), slot_of(tag)
        self._given = {name: one for name, one in options.items() if name in _LOGIN or name.startswith("ssl_")}
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._of.owner(self._slot, self._ask)
        return super()._connect()  # type: ignore[misc]  # a mixin: redis-py's connection has it

    def _ask(self, node: Node) -> Any:
        kind = SSLConnection if isinstance(self, SSLConnection) else Connection
        times: dict[str, Any] = {
            "socket_connect_timeout": ASKED,
            "socket_timeout": ASKED,
            "retry": Retry(NoBackoff(), 0),
        }
        return ask_slots(kind(host=node[0], port=node[1], decode_responses=True, **times, **self._given))

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read one answer. Raises a `NotNow` where it is that the keys are elsewhere, or on their way."""
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]  # likewise
        except ResponseError as error:
            raise self.refusal(error) or error from None

    @staticmethod
    def refusal(error: ResponseError) -> NotNow | None:
        """The refusal that passes, if an answer is one: also that the keys are elsewhere, or on their way."""
        if isinstance(error, MovedError):
            return Moved("MOVED", str(error))
        if isinstance(error, AskError):
            return NotNow("ASK", str(error))
        return NotNow("TRYAGAIN", str(error)) if NOT_HERE in str(error) else not_now(error)


class SlotConnection(_ToSlotOwner, Connection):
    """To the master that has a slot."""


class SecureSlotConnection(_ToSlotOwner, SSLConnection):
    """A connection to a node of the cluster with TLS."""


def connections(found: Clustered, tag: str, options: Mapping[str, Any], *, follow: bool) -> ConnectionPool:
    """Connections to whichever master has the slot of the tag when each is opened.

    Where keys have moved, a command ``follow``s them at once, unless its caller is to know that it has another server.
    """
    kind = SecureSlotConnection if found.options.get("ssl") else SlotConnection
    tls = {name: one for name, one in found.options.items() if name != "ssl"}
    retry = {"retry": FOLLOW} if follow else {}
    return ConnectionPool(kind, **{**options, **retry, **found.login, **tls, "nodes": found.nodes, "tag": tag})


def ask_slots(connection: Any) -> Any:
    """Ask a node for all slots."""
    try:
        connection.connect()
        connection.send_command("CLUSTER", "SLOTS")
        return connection.read_response()
    except ResponseError as error:
        if "cluster support disabled" in str(error):
            raise RedisError(f"{connection.host}:{connection.port} is not a node of a Redis Cluster") from None
        raise
    finally:
        connection.disconnect()


def slot_of(tag: str) -> int:
    """Return the slot of all keys with that tag."""
    return int(key_slot(tag.encode()))


def tags_for(slots: Iterable[SlotRange], many: int = 0) -> list[str]:
    """Tags of so many partitions, by turns on the masters that have slots now; of none, one on each master."""
    held: dict[Node, list[SlotRange]] = {}
    for one in sorted(slots):
        held.setdefault(one.master, []).append(one)
    masters = list(held.values())
    return [_tag_within(place, masters[place % len(masters)]) for place in range(many or len(masters))]


def _tag_within(place: int, ranges: Sequence[SlotRange]) -> str:
    number = 0
    while not any(one.first <= slot_of(f"p{place}.{number}") <= one.last for one in ranges):
        number += 1
    return f"p{place}.{number}"


def ranges(answer: Any, asked: Node) -> list[SlotRange]:
    """What ``CLUSTER SLOTS`` answers, of the node that was asked."""
    return [SlotRange(int(line[0]), int(line[1]), _node(line[2], asked)) for line in answer]


def _node(about: Any, asked: Node) -> Node:
    """Host and port; who does not know its own address means the one that it was asked at."""
    host = about[0].decode() if isinstance(about[0], bytes) else about[0]
    return (asked[0] if host in (None, "", "?") else str(host), int(about[1]))
