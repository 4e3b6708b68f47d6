"""For tests: a model server that answers by a script, and the tests that every provider passes.

from runner.testing import Answer, Call, ModelServer, Rule

with ModelServer([Rule("owls", Call("search", {"q": "owls"}), "Owls fly silently.")]) as server:
    os.environ.update(server.environment)
    ...

from runner.testing import ProviderConformance      # needs pytest, which the rest does not

class TestMine(ProviderConformance):
    @pytest.fixture
    def provider(self): return MyProvider()

    @pytest.fixture
    def location(self, tmp_path): return str(tmp_path / "checkpoints")
"""

from typing import TYPE_CHECKING, Any

from runner.modelserver import Answer, Call, ModelRequest, ModelServer, Rule

if TYPE_CHECKING:
    from runner.testing.conformance import ProviderConformance

__all__ = ["Answer", "Call", "ModelRequest", "ModelServer", "ProviderConformance", "Rule"]


def __getattr__(name: str) -> Any:
    if name != "ProviderConformance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    pytest.register_assert_rewrite("runner.testing.conformance", "runner.testing.writers")
    from runner.testing.conformance import ProviderConformance

    return ProviderConformance
