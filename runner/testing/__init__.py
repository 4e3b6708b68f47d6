"""For tests: a model server that answers by a script, workers that may be killed, the tests that every provider passes.

from runner.testing import Answer, Call, ModelServer, Rule

with ModelServer([Rule("owls", Call("search", {"q": "owls"}), "Owls fly silently.")]) as server:
    os.environ.update(server.environment)
    ...

from runner.testing import Fleet, RedisServer, eventually

with RedisServer() as redis, Fleet(redis.url) as fleet:
    worker = fleet.start()
    ...
    worker.kill_group()

from runner.testing import Cut, FaultProxy

with RedisServer() as redis, FaultProxy(redis) as proxy, Fleet(proxy.url) as fleet:
    proxy.decide = lambda command: Cut(applied=True) if command.name == "commit" else None
    ...

from runner.testing import ProviderConformance      # needs pytest, which the rest does not

class TestMine(ProviderConformance):
    @pytest.fixture
    def provider(self): return MyProvider()

    @pytest.fixture
    def location(self, tmp_path): return str(tmp_path / "checkpoints")

from runner.testing import ManualClock              # time that a test lets pass: MemoryStore(ManualClock())

from runner.testing import StoreConformance         # the same for stores of runs; a `StoreDriver` drives one
from runner.testing import AdapterConformance       # and for what a package adds: see docs/plugins.md
"""

from typing import TYPE_CHECKING, Any

from runner.modelserver import Answer, Call, ModelRequest, ModelServer, Rule

if TYPE_CHECKING:
    from runner.testing.clock import ManualClock
    from runner.testing.conformance import ProviderConformance
    from runner.testing.fault_proxy import Command, Cut, Delay, Fault, FaultProxy, Lose, Refuse
    from runner.testing.fleet import Fleet, RedisServer, WorkerProcess, children_of, eventually
    from runner.testing.plugins import (
        AdapterConformance,
        CallExample,
        CallParserConformance,
        CommandConformance,
        ObserverConformance,
    )
    from runner.testing.store_conformance import StoreConformance

_PLUGINS = (
    "AdapterConformance",
    "CallExample",
    "CallParserConformance",
    "CommandConformance",
    "ObserverConformance",
)

__all__ = [
    "AdapterConformance",
    "Answer",
    "Call",
    "CallExample",
    "CallParserConformance",
    "Command",
    "CommandConformance",
    "Cut",
    "Delay",
    "Fault",
    "FaultProxy",
    "Fleet",
    "Lose",
    "ManualClock",
    "ModelRequest",
    "ModelServer",
    "ObserverConformance",
    "ProviderConformance",
    "RedisServer",
    "Refuse",
    "Rule",
    "StoreConformance",
    "WorkerProcess",
    "children_of",
    "eventually",
]


def __getattr__(name: str) -> Any:
    if name in ("Fleet", "RedisServer", "WorkerProcess", "children_of", "eventually"):
        from runner.testing import fleet

        return getattr(fleet, name)
    if name in ("Command", "Cut", "Delay", "Fault", "FaultProxy", "Lose", "Refuse"):
        from runner.testing import fault_proxy

        return getattr(fault_proxy, name)
    if name == "ManualClock":
        from runner.testing import clock

        return clock.ManualClock
    if name not in ("ProviderConformance", "StoreConformance", *_PLUGINS):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    if name in _PLUGINS:
        pytest.register_assert_rewrite("runner.testing.plugins")
        from runner.testing import plugins

        return getattr(plugins, name)
    if name == "StoreConformance":
        parts = ("driver", "claims", "endings", "branches", "conformance")
        pytest.register_assert_rewrite(*(f"runner.testing.store_{part}" for part in parts))
        from runner.testing.store_conformance import StoreConformance

        return StoreConformance
    pytest.register_assert_rewrite(*(f"runner.testing.{name}" for name in ("conformance", "pruning", "writers")))
    from runner.testing.conformance import ProviderConformance

    return ProviderConformance
