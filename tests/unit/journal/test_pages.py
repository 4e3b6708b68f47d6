"""The pages on which a worker's processes state what they perform."""

import pytest

from runner.journal import shared_memory


def test_a_dead_process_performs_nothing_nor_do_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given the pages of two processes, and of a thread of each
    for name in ("_memory", "_logs", "_thread_logs", "_places"):
        monkeypatch.setattr(shared_memory, name, getattr(shared_memory, name))
    shared_memory.share(2, task_threads=2)
    for place, process in enumerate(("7", "71")):
        shared_memory.page(place, process).claimed("r|main|a", 3)
        shared_memory.page(place, f"{process}-0", in_shared_process=True).claimed("r|main|b", 4)
    # When one is dead
    shared_memory.forget(7)
    # Then nothing is known of it, and all of the other
    assert {name: at.token for name, at in shared_memory.performed().items()} == {"71": 3, "71-0": 4}
