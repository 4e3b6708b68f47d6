"""Models' clients are imported before a task needs them, and while one is, the other tasks of the thread go on."""

import gc
import threading
from collections.abc import Collection
from typing import Any

import pytest

from runner import LLM
from runner.llm.clients import preloading
from runner.tasks.preloading import Preloading


class Fleet:
    """What workers said."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def clients(self, imported: Collection[str], seconds: int) -> set[str]:
        assert seconds > 0
        self.names |= set(imported)
        return set(self.names)


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process imported ahead."""
    found: list[str] = []
    monkeypatch.setattr(preloading, "imported", lambda: list(found))

    def preload(name: str) -> None:
        if name == "litellm":
            raise ImportError("it is not installed")
        found.append(name)

    monkeypatch.setattr(preloading, "preload", preload)
    return found


def test_what_others_use_is_imported_once_and_what_this_one_uses_is_said(imported: list[str]) -> None:
    fleet, worker = Fleet("openai", "litellm"), Preloading("redis://nowhere")
    for _ in range(3):
        worker.look(fleet)
    assert imported == ["openai"]
    imported.append("anthropic")
    worker.look(fleet)
    assert fleet.names == {"openai", "anthropic", "litellm"}
    assert imported == ["openai", "anthropic"]


def test_what_was_imported_is_not_walked_through_by_a_collector_while_a_task_begins(imported: list[str]) -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    try:
        Preloading("redis://nowhere").look(Fleet("openai"))
        assert imported == ["openai"]
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("name", ["os", "..llm", "openai.evil", "preloading", ""])
def test_a_stored_name_imports_nothing_but_a_client(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preloading.importlib, "import_module", lambda *_: pytest.fail("it imports"))
    preloading.preload(name)


def test_a_client_that_is_imported_keeps_no_other_task_waiting(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a client whose import ends only when another task of the thread has gone on
    others, made = threading.Event(), list[str]()

    class Client:
        def warm(self) -> None:
            assert others.wait(10)
            made.append(threading.current_thread().name)

    monkeypatch.setattr(LLM, "_client", lambda *_: Client())
    model = LLM("openai/m", api_key="none")
    # When two tasks need it
    tasks.begin(model.warm)
    tasks.begin(model.warm)
    tasks.begin(others.set)
    # Then it is made once, in a thread beside them, and afterwards nobody waits for one
    assert len(tasks.results()) == 3
    assert made == ["task"]
    tasks.begin(model.warm)
    assert tasks.results()[3:] == [None]
    assert made == ["task"]
