"""Counts calls of models that go past the journal in a task: by host and path, with no key and no question.

What leaves by the standard library's own HTTP client, by curl, by WebSocket, or by gRPC as a stream of requests is made
again when its task restarts, and is in no account. Each call is noted among the run's events before it leaves, so a
kill hides none.
"""

import re
from urllib.parse import urlsplit

from runner.core.errors import UsageError
from runner.journal.current_journal import current_journal
from runner.llm.recording import wire
from runner.llm.recording.forked_processes import forks
from runner.llm.recording.parsers import parsers
from runner.modelserver.stubs import chosen


def may_be(method: str, url: str) -> bool:
    """Whether a request that is about to be made may be such a call."""
    is_here = forks.task or current_journal(imports=True) is not None
    return bool(is_here) and wire.may_be(method, url)


_SOCKETS = re.compile(r"/(?:realtime|responses|[\w.]*BidiGenerateContent)$")
"""Where models are asked by WebSocket: OpenAI's, Azure's, Google's."""


def look_at_socket(url: str) -> None:
    """Count a connection by WebSocket, if it leads to a model."""
    if _SOCKETS.search(urlsplit(url).path) or any(parser.may_be("GET", url) for parser in parsers()):
        count(url)


def look_at(method: str, url: str, body: bytes | None) -> None:
    """Count a request that is about to leave, if it is a call of a model made in a task.

    ``body`` is None where it is only known as it goes out: then its path says what it is.
    """
    if may_be(method, url) and (body is None or wire.request(method, url, body, None) is not None):
        count(url)


def count(url: str) -> None:
    """Count a call that is about to leave, if it is made in a task."""
    parts = urlsplit(url)
    where = f"{parts.netloc.rpartition('@')[2]}{parts.path}"
    refuse_beside_standin(where)
    if forks.task:
        forks.report(where)
    elif (found := current_journal(imports=True)) is not None:
        found[0].note_unrecorded(where)


def refuse_beside_standin(where: str) -> None:
    """Raise UsageError in a run whose models a stand-in answers: the call would go to the real service, and be paid."""
    if name := standin():
        raise UsageError(f"--{name} cannot answer this call, which would go to {where} itself: it was not sent")


def standin() -> str | None:
    """Return the stand-in for this run's models, if any. No model call may leave then."""
    found = current_journal(imports=True)
    return chosen() or (found[0].standin if found is not None else forks.standin)
