"""What a task's code says of logging holds for it alone, and takes nothing from the worker's log."""

import contextlib
import importlib
import io
import logging
import logging.config
import logging.handlers
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from runner.bundles import task_logging
from runner.core.redaction import redact_handlers

KEY = "sk-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(autouse=True)
def loggers_are_put_back() -> Iterator[None]:
    """A task that is its process's last leaves the loggers of libraries as it likes."""
    logging.getLogger("runner.tasks")
    task_logging.of_worker.cache_clear()
    task_logging.of_worker()  # they are looked for before any task
    known = logging.root.manager.loggerDict.copy()
    before = {
        one: {**vars(one), "handlers": one.handlers.copy()} for one in known.values() if isinstance(one, logging.Logger)
    }
    yield
    for name in logging.root.manager.loggerDict.keys() - known.keys():
        del logging.root.manager.loggerDict[name]
    for one, state in before.items():
        vars(one).update(state, _cache={})


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


@pytest.mark.parametrize("last", [False, True])
def test_basic_config_is_the_author_s_while_his_task_is_at_work(last: bool) -> None:
    with worker_log() as log:
        root = logging.getLogger()
        handlers = list(root.handlers)
        for _ in range(2):  # one task after another
            undo = task_logging.begin(last=last)
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
        undo = task_logging.begin()
        mine = logging.getLogger("mine")
        mine.setLevel(logging.INFO)
        mine.info("passed over")
        mine.warning("slow, with %s", KEY)
        undo()
        assert log.getvalue().splitlines() == ["WORKER slow, with ***"]


@pytest.mark.parametrize("last", [False, True])
def test_what_replaces_all_logging_takes_nothing_from_the_worker(last: bool, tmp_path: Path) -> None:
    with worker_log() as log:
        ours = logging.getLogger("runner.tasks")
        undo = task_logging.begin(last=last)
        file = {"class": "logging.FileHandler", "filename": str(tmp_path / "agent.log")}
        logging.config.dictConfig(
            {"version": 1, "handlers": {"file": file}, "root": {"handlers": ["file"], "level": "INFO"}}
        )
        logging.getLogger(f"mine.new.{last}").info("asked with %s", KEY)
        logging.basicConfig(force=True, stream=sys.stderr, format="MINE %(message)s")
        logging.getLogger(f"mine.new.{last}").warning("slow")
        logging.disable(logging.CRITICAL)
        undo()
        ours.info("ended")
        assert (tmp_path / "agent.log").read_text() == f"asked with {KEY}\n"
        assert log.getvalue().splitlines() == ["MINE slow", "WORKER ended"]


def state() -> dict[str, Any]:
    """All that a task may change of a process's logging."""
    loggers = [
        logging.root,
        *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)),
    ]
    fields = ("handlers", "filters", "level", "propagate", "disabled")
    found: dict[str, Any] = {one.name: [list(v) if isinstance(v := getattr(one, name), list) else v for name in fields]
                             for one in loggers}  # fmt: skip
    return found | {
        "": (
            logging.root.manager.disable,
            logging.getLogRecordFactory(),
            logging.getLoggerClass(),
            logging.raiseExceptions,
            logging.lastResort,
            getattr(logging, "_warnings_showwarning"),  # noqa: B009 - mypy knows nothing of it
            vars(logging.StreamHandler).get("format"),
            logging.Logger.addHandler,
            logging.Logger.setLevel,
        )
    }


class Kept(logging.Handler):
    """Keeps what it receives; it does not close."""

    closed = 0

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def close(self) -> None:
        self.closed += 1
        raise ValueError("no")


def changes_everything(handler: logging.Handler) -> None:
    """What an agent's file may do to the logging of its process."""

    class Own(logging.Logger):
        pass

    for name in ("", "task_logging.known", "task_logging.made", "celery", "runner.tasks"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.addFilter(lambda record: True)
        logger.setLevel(logging.DEBUG)
        logger.propagate, logger.disabled = name == "", True
    logging.disable(logging.WARNING)
    logging.setLogRecordFactory(lambda *args, **kwargs: logging.LogRecord(*args, **kwargs))
    logging.setLoggerClass(Own)
    logging.captureWarnings(True)
    logging.raiseExceptions = False


def test_nothing_that_a_task_says_of_logging_holds_for_the_next_and_a_handler_that_does_not_close_changes_nothing() -> (
    None
):
    with worker_log() as log:
        logging.getLogger("task_logging.known").addHandler(own := logging.NullHandler())
        before = state()
        for _ in range(2):
            undo = task_logging.begin()
            handler, file = Kept(), Kept()
            changes_everything(handler)
            logging.getLogger("task_logging.made").addHandler(file)
            undo()
            assert (handler.closed, file.closed) == (1, 1)
            after = state()
            assert {name: after[name] for name in before} == before
            assert after["task_logging.made"] == [[], [], logging.NOTSET, True, False]
            logging.getLogger("task_logging.made").warning("of another")
            assert not handler.lines
            assert not file.lines
        assert log.getvalue().splitlines() == ["WORKER of another"] * 2
        logging.getLogger("task_logging.known").removeHandler(own)


@pytest.mark.parametrize("last", [False, True])
def test_what_a_handler_kept_until_it_closes_is_written_without_secrets(last: bool) -> None:
    with worker_log() as log:
        undo = task_logging.begin(last=last)
        target = logging.StreamHandler()
        logging.getLogger("task_logging.late").addHandler(logging.handlers.MemoryHandler(100, target=target))
        logging.getLogger("task_logging.late").warning("asked with %s", KEY)
        assert log.getvalue() == ""
        undo()
        assert log.getvalue().splitlines() == ["asked with ***"]


def test_what_a_library_says_of_its_loggers_as_it_is_imported_stays_for_it_is_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a library that sets up its logger, and a module of the task that does
    code = (
        "import logging, sys\nlog = logging.getLogger(__name__)\nlog.addHandler(logging.StreamHandler(sys.stderr))\n"
        "log.setLevel('INFO')\nlog.propagate = False\n"
    )
    (installed := tmp_path / "installed").mkdir()
    (project := tmp_path / "project").mkdir()
    (installed / "task_logging_library.py").write_text(code)
    (project / "task_logging_project.py").write_text("import task_logging_library\n" + code)
    monkeypatch.chdir(project)
    for folder in (installed, project):
        monkeypatch.syspath_prepend(folder)
    with worker_log() as log:
        # When the task imports them, and adds to what the library says
        undo = task_logging.begin()
        importlib.import_module("task_logging_project")
        (library := logging.getLogger("task_logging_library")).addHandler(added := Kept())
        library.setLevel(logging.DEBUG)
        undo()
        # Then the next has what the library said, and nothing else
        undo = task_logging.begin()
        library.info("of the next")
        library.debug("not asked for")
        logging.getLogger("task_logging_project").info("not asked for")
        undo()
        assert log.getvalue().splitlines() == ["of the next"]
        assert (library.propagate, added.lines, added.closed) == (False, [], 1)


class Seen(logging.Logger):
    """Counts what is asked of it: a forked process has a page of memory copied for each logger that it looks at."""

    def __getattribute__(self, name: str) -> Any:
        vars(Seen)["asked"].append(name)
        return super().__getattribute__(name)

    asked: ClassVar[list[str]] = []


def test_a_process_that_ends_looks_at_no_logger_of_a_library_and_closes_the_handlers_of_all() -> None:
    known = logging.root.manager.loggerDict
    with worker_log() as log:
        known["task_logging.library"] = Seen("task_logging.library")
        try:
            for last in (True, False):
                Seen.asked.clear()
                undo = task_logging.begin(last=last)
                (mine := logging.getLogger("task_logging.mine")).addHandler(kept := Kept())
                logging.getLogger().addHandler(logging.NullHandler())
                mine.warning("slow")
                undo()
                assert bool(Seen.asked) is not last
                assert (kept.lines, kept.closed) == (["slow"], 1)
        finally:
            del known["task_logging.library"]
        assert log.getvalue() == ""
        logging.getLogger("runner.tasks").info("ended")
        assert log.getvalue() == "WORKER ended\n"
        mine.handlers.clear()
