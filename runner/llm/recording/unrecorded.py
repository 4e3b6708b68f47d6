"""Counts calls of models that go past the journal in a task: by host and path, with no key and no question.

What leaves by the standard library's own HTTP client, or by gRPC, is made again when its task restarts, and is in no
account.
"""

import re
from collections import Counter
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.enclosing import current_journal
from runner.llm.recording import wire
from runner.llm.recording.parsers import parsers

SEEN: WeakKeyDictionary[CancelScope, Counter[str]] = WeakKeyDictionary()
"""What was counted, by the scope of the task."""


def may_be(method: str, url: str) -> bool:
    """Whether a request that is about to be made may be such a call."""
    return wire.may_be(method, urlsplit(url).path, lambda: url) and current_journal() is not None


_METHODS = re.compile(
    r"/(?:Stream|Batch|ServerStreaming|Bidi)?(?:GenerateContent|GenerateText|GenerateMessage|EmbedContents?|EmbedText|Embed"
    r"|Predict|RawPredict|GetCompletion|GetCompletionChunk|SampleText|GenerateImage|ModelInfer|ModelStreamInfer)$"
)
"""The methods by which models are asked: Google's, xAI's, Triton's."""


def look_at_rpc(host: str, method: str) -> None:
    """Count a call by gRPC, if its method is one of a model, or a parser or a setting says that it is."""
    url = f"https://{host.rpartition('/')[2]}{method}"
    if _METHODS.search(method) or any(parser.may_be("POST", url) for parser in parsers()):
        found = current_journal()
        if found is not None:
            _count(found[0].cancel_scope, url)


def look_at(method: str, url: str, body: bytes) -> None:
    """Count a request, if it is a call of a model made in a task."""
    found = current_journal()
    if found is None or wire.request(method, url, body, lambda _: False) is None:
        return
    _count(found[0].cancel_scope, url)


def _count(scope: CancelScope, url: str) -> None:
    parts = urlsplit(url)
    SEEN.setdefault(scope, Counter())[f"{parts.netloc}{parts.path}"] += 1


def take(scope: CancelScope) -> str:
    """What was counted in a task, in words; it is counted no longer."""
    return ", ".join(f"{count} to {place}" for place, count in sorted(SEEN.pop(scope, Counter[str]()).items()))
