"""The state machine of a flow: decides which methods run now. Pure: no clock, no I/O, deterministic.

There are two moves. ``begin`` triggers the entry points. ``finish`` takes a finished call, publishes its names (the
method's name and, for a router, its label) and triggers the listeners whose conditions these complete. A triggered call
is ``pending`` until it is finished; a flow is over when none is pending.

How a listener receives names:

- It collects names until they meet its condition; then it is triggered, and forgets them.
- A listener with alternatives (``or_``) is triggered **once in each round**: later names of the same round are ignored.
  A round is defined by cause, not by time. Each call knows its *trail*: the methods that led to it, with the latest
  turn of each. A method that is triggered although it is in its own trail runs again: a loop has completed, and a new
  *round* begins. A listener again receives names that follow from its own latest call, and names of a round that began
  after that call. So two concurrent branches meet an ``or_`` once, and a loop meets it once in each iteration.

A call's key is its method's name, from the second turn on with the turn: ``review``, ``review#2``.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from typing import Any

from runner.core.errors import BadFlow, FlowLoop
from runner.flows.definition import FlowDefinition, Method

MAX_METHOD_CALLS = 100
"""How often one method may be triggered in one run, unless the flow says otherwise."""


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a method that is triggered and not finished.

    Attributes:
        by: the key of the call whose output it gets; "" for an entry point.
        signal: the label that triggered it, if it was not the method's own name.
        round: the machine's time at which the newest loop in its trail began.
    """

    key: str
    method: str
    by: str = ""
    signal: str = ""
    trail: Mapping[str, int] = field(default_factory=dict)
    round: int = 0

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name))}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Call":
        """The inverse of `to_data`."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class PendingTrigger:
    """A name that a listener has received while it waits for others, with the trail and round of its call."""

    trail: Mapping[str, int]
    round: int


@dataclass(frozen=True, slots=True)
class Done:
    """A finished call in a log, in the order of finishing, from which `replay` rebuilds a machine."""

    key: str
    method: str
    signal: str | None = None


class Machine:
    """The moves of one run of a flow."""

    def __init__(self, definition: FlowDefinition, max_method_calls: int = MAX_METHOD_CALLS) -> None:
        self.definition = definition
        self.pending: dict[str, Call] = {}
        self._limit = max_method_calls
        self._time = 0
        self._turns: dict[str, int] = {}
        self._received: dict[str, dict[str, PendingTrigger]] = {}
        self._fired: dict[str, int] = {}

    @property
    def finished(self) -> int:
        """The number of finished calls."""
        return self._time

    def begin(self) -> list[Call]:
        """Trigger the entry points."""
        return [self._trigger(method, Call("", ""), {}, 0) for method in self.definition.starts]

    def only(self, method: str) -> Call:
        """Make one call of this method the only pending one; nothing before it is known."""
        self.pending = {}
        return self._trigger(self.definition.methods[method], Call("", ""), {}, 0)

    def finish(self, key: str, signal: str | None = None) -> list[Call]:
        """Finish a pending call; ``signal`` is its label, if it is a router's. Returns the calls that this triggers.

        Raises `FlowLoop` when a method is triggered more often than allowed; the machine cannot be used afterwards.
        """
        return self._signalled(self.pending.pop(key), signal)

    def take_back(self, done: Done) -> list[Call]:
        """`finish` for history: accepts a call that the present code would not have triggered."""
        if done.key not in self.pending:
            call = Call(done.key, done.method)
            self._turns[done.method] = max(self._turns.get(done.method, 0), turn_of(done.key))
            return self._signalled(call, done.signal)
        return self.finish(done.key, done.signal)

    def pass_over(self, methods: Set[str]) -> list[Call]:
        """Mark these methods as done, so that their listeners are pending. Returns their calls, in order.

        A method behind a router counts as reached if it is one of these. Raises `BadFlow`.
        """
        for method in methods - self.definition.methods.keys():
            known = ", ".join(self.definition.methods)
            raise BadFlow(f"flow {self.definition.name} has no method {method!r}; it has: {known}")
        left = [name for name in self.definition.methods if name in methods]
        done = []
        while left:
            call = next((one for one in self.pending.values() if one.method in left), None) or Call(left[0], left[0])
            left.remove(call.method)
            self.take_back(Done(call.key, call.method))
            done.append(call)
        return done

    def _signalled(self, call: Call, signal: str | None) -> list[Call]:
        self._time += 1
        triggered: list[Call] = []
        for name in dict.fromkeys([call.method] if signal is None else [call.method, signal]):
            for method in self.definition.listeners.get(name, ()):
                if (found := self._receive(method, name, call)) is not None:
                    triggered.append(found)
        return triggered

    def _receive(self, method: Method, name: str, call: Call) -> Call | None:
        assert method.when is not None  # it listens
        trail = _joined(call.trail, {call.method: turn_of(call.key)})
        if method.when.has_alternatives and method.name in self._fired:
            follows = trail.get(method.name) == self._turns[method.name]
            if not follows and call.round <= self._fired[method.name]:
                return None
        received = self._received.setdefault(method.name, {})
        received[name] = PendingTrigger(trail, self._time if method.name in trail else call.round)
        if not method.when.is_met(received.keys()):
            return None
        del self._received[method.name]
        if method.when.has_alternatives:
            self._fired[method.name] = self._time
        trails = _joined(*(one.trail for one in received.values()))
        source = Call(call.key, call.method, signal="" if name == call.method else name)
        return self._trigger(method, source, trails, max(one.round for one in received.values()))

    def _trigger(self, method: Method, source: Call, trail: Mapping[str, int], began: int) -> Call:
        turn = self._turns.get(method.name, 0) + 1
        if turn > self._limit:
            raise FlowLoop(
                f"method {method.name!r} was triggered more than {self._limit} times: "
                "if the loop does end, give the flow a larger max_method_calls"
            )
        self._turns[method.name] = turn
        key = key_of(method.name, turn)
        call = Call(key, method.name, source.key, source.signal, trail, began)
        self.pending[key] = call
        return call

    def to_data(self) -> dict[str, Any]:
        """Return as JSON all that is needed to resume."""
        return {
            "time": self._time,
            "turns": dict(self._turns),
            "heard": {
                method: {name: [dict(one.trail), one.round] for name, one in names.items()}
                for method, names in self._received.items()
            },
            "fired": dict(self._fired),
            "pending": [call.to_data() for call in self.pending.values()],
        }

    @classmethod
    def from_data(
        cls, definition: FlowDefinition, data: dict[str, Any], max_method_calls: int = MAX_METHOD_CALLS
    ) -> "Machine":
        """The inverse of `to_data`."""
        machine = cls(definition, max_method_calls)
        machine._time = data["time"]
        machine._turns = dict(data["turns"])
        machine._fired = dict(data["fired"])
        machine._received = {
            method: {name: PendingTrigger(trail, began) for name, (trail, began) in names.items()}
            for method, names in data["heard"].items()
        }
        machine.pending = {call["key"]: Call.from_data(call) for call in data["pending"]}
        return machine


def replay(definition: FlowDefinition, log: Iterable[Done], max_method_calls: int = MAX_METHOD_CALLS) -> Machine:
    """Rebuild the machine from a history. Its ``pending`` calls are to run now."""
    machine = Machine(definition, max_method_calls)
    machine.begin()
    for done in log:
        machine.take_back(done)
    return machine


def _joined(*trails: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for trail in trails:
        for method, turn in trail.items():
            found[method] = max(turn, found.get(method, 0))
    return found


def key_of(method: str, turn: int) -> str:
    """Return the key of a method's n-th call."""
    return method if turn == 1 else f"{method}#{turn}"


def turn_of(key: str) -> int:
    """Return which call of its method a key names."""
    return int(key.partition("#")[2] or 1)


def method_of(key: str) -> str:
    """Return the method whose call a key names."""
    return key.partition("#")[0]
