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

from runner.core.runtime import names_from
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

_find = names_from(
    __name__,
    {
        "runner.testing.clock": "ManualClock",
        "runner.testing.conformance": "ProviderConformance",
        "runner.testing.fault_proxy": "Command Cut Delay Fault FaultProxy Lose Refuse",
        "runner.testing.fleet": "Fleet RedisServer WorkerProcess children_of eventually",
        "runner.testing.plugins": (
            "AdapterConformance CallExample CallParserConformance CommandConformance ObserverConformance"
        ),
        "runner.testing.store_conformance": "StoreConformance",
    },
)
_SUITES = (
    *("conformance", "plugins", "pruning", "store_branches", "store_claims", "store_conformance", "store_driver"),
    *("store_endings", "writers"),
)


def __getattr__(name: str) -> Any:
    if name.endswith(("Conformance", "CallExample")):
        import pytest

        pytest.register_assert_rewrite(*(f"runner.testing.{suite}" for suite in _SUITES))
    return _find(name)
