"""What a task's code says of logging holds for it alone, and takes nothing from the worker's log."""

import contextlib
import io
import logging
import logging.config
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.bundles import own_logging
from runner.core.redaction import redact_handlers

KEY = "sk-abcdefghijklmnopqrstuvwxyz0123456789"


@contextlib.contextmanager
def worker_log() -> Iterator[io.StringIO]:
    """Have the root logger be as in a worker, whose handler writes to the standard error. (No fixture: pytest puts
    handlers, and a standard error, of its own in place when the test itself begins.)"""
    stream, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger("runner")
    before, level = root.handlers, root.level
    with contextlib.redirect_stderr(stream):
        root.handlers = [logging.StreamHandler()]
        root.handlers[0].setFormatter(logging.Formatter("WORKER %(message)s"))
        redact_handlers(root)
        root.setLevel(logging.WARNING)
        ours.setLevel(logging.INFO)
        try:
            yield stream
        finally:
            root.handlers = before
            root.setLevel(level)
            ours.setLevel(logging.NOTSET)


def test_basic_config_is_the_author_s_while_his_task_is_at_work() -> None:
    with worker_log() as log:
        root = logging.getLogger()
        handlers = list(root.handlers)
        for _ in range(2):  # one task after another
            undo = own_logging.begin()
            logging.basicConfig(level=logging.DEBUG, format="MINE %(message)s")
            logging.getLogger("mine").debug("asked with %s", KEY)
            logging.getLogger("runner.tasks").info("beat")
            logging.getLogger("runner.tasks").debug("nothing of ours that the worker does not log")
            undo()
            logging.getLogger("mine").info("not any more")
            logging.getLogger("runner.tasks").info("ended")
        found = log.getvalue().splitlines()
        assert found == ["MINE asked with ***", "WORKER beat", "WORKER ended"] * 2
        assert (root.handlers, root.level) == (handlers, logging.WARNING)


def test_where_nothing_is_set_up_warnings_are_in_the_worker_s_log() -> None:
    with worker_log() as log:
        undo = own_logging.begin()
        mine = logging.getLogger("mine")
        mine.setLevel(logging.INFO)
        mine.info("passed over")
        mine.warning("slow, with %s", KEY)
        undo()
        assert log.getvalue().splitlines() == ["WORKER slow, with ***"]


def test_what_replaces_all_logging_takes_nothing_from_the_worker(tmp_path: Path) -> None:
    with worker_log() as log:
        ours = logging.getLogger("runner.tasks")
        undo = own_logging.begin()
        file = {"class": "logging.FileHandler", "filename": str(tmp_path / "agent.log")}
        logging.config.dictConfig(
            {"version": 1, "handlers": {"file": file}, "root": {"handlers": ["file"], "level": "INFO"}}
        )
        logging.getLogger("mine.new").info("asked with %s", KEY)
        logging.basicConfig(force=True, stream=sys.stderr, format="MINE %(message)s")
        logging.getLogger("mine.new").warning("slow")
        undo()
        ours.info("ended")
        assert (tmp_path / "agent.log").read_text() == f"asked with {KEY}\n"
        assert log.getvalue().splitlines() == ["MINE slow", "WORKER ended"]
