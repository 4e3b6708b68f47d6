"""What a worker has in its main process before it forks, so that none of its children makes it for itself."""

import importlib.metadata
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from billiard import get_context
from celery import platforms

from runner.bundles import task_logging
from runner.core.processes import end_with_parent
from runner.engine import adapters, observers
from runner.journal import shared_memory
from runner.providers.redis import scripts
from runner.tasks import jobs, pool


def test_all_scripts_and_observers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_WORKER_ID", "w-1")
    monkeypatch.setattr(shared_memory, "share_sent", lambda *_: "")
    jobs.share()
    found = (scripts.load, observers.installed, task_logging.of_worker)
    asked = [one.cache_info().misses for one in found]
    for name in scripts.names():
        scripts.load(name)
    observers.installed()
    task_logging.of_worker()
    assert [one.cache_info().misses for one in found] == asked


def test_no_child_looks_through_the_packages_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_WORKER_ID", "w-1")
    monkeypatch.setattr(shared_memory, "share_sent", lambda *_: "")
    jobs.share()
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: pytest.fail("it reads them"))
    adapters.preparations.cache_clear()
    assert adapters.preparations("native") == ()


def test_a_child_ends_with_its_worker_without_a_parser_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "_set_pdeathsig", None)
    pool.install()
    assert platforms._set_pdeathsig is end_with_parent


class Seen(logging.Logger):
    """Says what was asked of it."""

    asked: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        Seen.asked = (*Seen.asked, name)
        return super().__getattribute__(name)


@pytest.fixture
def library() -> Iterator[logging.Handler]:
    """The handler of a library's logger."""
    logger, handler = Seen("before_forks.library"), logging.StreamHandler()
    logger.addHandler(handler)
    logging.root.manager.loggerDict[logger.name] = logger
    yield handler
    del logging.root.manager.loggerDict[logger.name]


@pytest.mark.slow
def test_a_child_looks_at_no_library_s_logger_as_it_begins_and_can_use_each(library: logging.Handler) -> None:
    forking = get_context("fork")
    reads, writes = forking.Pipe(duplex=False)

    def say() -> None:
        asked = Seen.asked
        logging.getLogger("before_forks.library").warning("said, though a thread was saying something at the fork")
        writes.send(asked)

    child = forking.Process(target=say)
    pool.pass_over_loggers(child)
    holds, forked = threading.Event(), threading.Event()

    def hold() -> None:
        library.acquire()
        holds.set()
        forked.wait(60)
        library.release()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(60)
    Seen.asked = ()
    try:
        child.start()
        assert reads.poll(60), "it waits for what another thread held"
        assert reads.recv() == ()
    finally:
        forked.set()
        thread.join()
        child.terminate()
        child.join()
