"""The transports of a library are journaled whenever it was imported: before, after, or while that began."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from runner.llm.recording import loading
from runner.llm.recording.wrapping import precede, wrap
from runner.tasks.preloading import Preloading


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that were journaled, in a process that watches no imports yet and knows one library."""
    found: list[str] = []
    monkeypatch.setattr(loading, "_watching", False)
    monkeypatch.setattr(loading, "_TRANSPORTS", {"a_library": "none"})
    monkeypatch.setattr(loading, "_install", lambda module: found.append(module.__name__))
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, loading._Finder)])
    return found


def test_one_that_a_thread_is_importing_is_journaled_when_that_is_done(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SimpleNamespace(_initializing=True)
    library: Any = SimpleNamespace(__name__="a_library", __spec__=spec)
    monkeypatch.setitem(sys.modules, "a_library", library)
    loading.watch_imports()
    assert installed == []
    spec._initializing = False
    loading.watch_imports()
    loading.watch_imports()
    assert installed == ["a_library"]


def test_a_worker_watches_before_it_imports_what_others_use(installed: list[str]) -> None:
    Preloading("redis://nowhere")
    assert any(isinstance(one, loading._Finder) for one in sys.meta_path)


@pytest.mark.parametrize("way", [wrap, precede])
def test_a_library_without_the_method_that_is_wrapped_is_not_loaded_unjournaled(way: Any) -> None:
    """Its calls would be paid again after a kill, and nobody told."""
    with pytest.raises(AttributeError, match="send"):
        way(type("Connection", (), {}), "send", lambda theirs: theirs)
