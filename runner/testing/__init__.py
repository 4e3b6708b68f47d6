"""For who writes a provider: the tests that every provider passes. Needs pytest, which the library itself does not.

from runner.testing import ProviderConformance

class TestMine(ProviderConformance):
    @pytest.fixture
    def provider(self): return MyProvider()

    @pytest.fixture
    def location(self, tmp_path): return str(tmp_path / "checkpoints")
"""

import pytest

pytest.register_assert_rewrite("runner.testing.conformance", "runner.testing.writers")

from runner.testing.conformance import ProviderConformance  # noqa: E402  (after the registration, or it has no effect)

__all__ = ["ProviderConformance"]
