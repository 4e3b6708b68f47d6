"""What the tests of loading code share."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.bundles import isolation, loader


@pytest.fixture
def no_module_leaks(tmp_path):
    """After each test: the modules and the path are as they were, but for the bundles', which go."""
    before, path = set(sys.modules), list(sys.path)
    yield
    # The standard library may import more of itself; a bare name that a bundle's file has must not appear.
    files = [(name, getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items())]
    leaked = [
        n for n, f in files if n not in before and f.startswith(str(tmp_path)) and not n.startswith(isolation.PREFIX)
    ]
    assert leaked == []
    assert sys.path == path
    for name in list(isolation.spaces):
        assert loader._unload(name), f"{name} is still in use"
    assert not [name for name in sys.modules if name.startswith(isolation.PREFIX)]


@pytest.fixture
def make(tmp_path) -> Callable[[str, dict[str, str]], Path]:
    """Write a crew's files into a folder of that name: ``make("one", {"crew.py": "..."})``."""

    def write(name: str, files: dict[str, str]) -> Path:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return tmp_path / name

    return write
