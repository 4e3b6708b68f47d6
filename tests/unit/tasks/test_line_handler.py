"""The handler of a worker's log writes what logging's own writes."""

import io
import logging
import sys

import pytest

from runner.tasks.line_handler import LineHandler


class Refuses(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(text)


def test_a_handler_of_lines_writes_what_a_handler_of_streams_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for make in (logging.StreamHandler, lambda stream: LineHandler(logging.StreamHandler(stream))):
        handler = make(io.StringIO())
        for formatter in (None, logging.Formatter("%(levelname)s %(message)s")):
            handler.setFormatter(formatter)
            handler.handle(logging.LogRecord("n", logging.INFO, "f", 1, "%s of %d", ("half", 2), None))
        handler.addFilter(lambda record: record.levelno > logging.INFO)
        assert not handler.handle(logging.LogRecord("n", logging.INFO, "f", 1, "filtered", (), None))
        assert handler.handle(logging.LogRecord("n", logging.ERROR, "f", 1, "two\nlines", (), None))
        written.append(handler.stream.getvalue())
    assert written[0] == written[1] != ""
    failed: list[logging.LogRecord] = []
    refused = LineHandler(logging.StreamHandler(Refuses()))
    monkeypatch.setattr(refused, "handleError", failed.append)
    refused.handle(record := logging.LogRecord("n", logging.INFO, "f", 1, "said", (), None))
    assert failed == [record]


def test_a_handler_of_lines_has_what_the_one_before_it_had() -> None:
    former = logging.StreamHandler(io.StringIO())
    former.terminator = "|"
    former.setLevel(logging.INFO)
    former.addFilter(lambda record: record.msg != "filtered")
    lines = LineHandler(former)
    for what in ("said", "filtered"):
        lines.handle(logging.LogRecord("n", logging.INFO, "f", 1, what, (), None))
    assert (lines.stream.getvalue(), lines.level) == ("said|", logging.INFO)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a filter says yes or no")
def test_a_filter_may_put_another_record_in_the_place_of_one() -> None:
    lines = LineHandler(logging.StreamHandler(io.StringIO()))
    lines.addFilter(lambda _: logging.LogRecord("n", logging.INFO, "f", 1, "another", (), None))
    lines.handle(logging.LogRecord("n", logging.INFO, "f", 1, "said", (), None))
    assert lines.stream.getvalue() == "another\n"


def test_a_handler_of_lines_without_a_formatter_says_why_it_failed() -> None:
    lines = LineHandler(logging.StreamHandler(io.StringIO()))
    lines.handle(logging.LogRecord("n", logging.ERROR, "f", 1, "failed", (), (ValueError, ValueError("no"), None)))
    assert lines.stream.getvalue() == "failed\nValueError: no\n"
