"""What a call of a model by gRPC is: by its host, its method and the bytes of its request. Pure.

In the journal it stands as it goes over the wire: a POST to its method, answered by messages in gRPC's frames. What is
in them is told by the numbers of protobuf's fields, so no vendor's package is needed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from runner.core.ledger import NO_TOKENS, Usage
from runner.llm.recording import protobuf, wire
from runner.llm.recording.parsers import parsers

HEADERS = (("Content-Type", "application/grpc"),)
"""Those of each answer that is recorded: metadata is not, as it may hold what is secret."""


class _Service(NamedTuple):
    """Methods by which models are asked: the field that names the model, and where an answer has its tokens."""

    methods: re.Pattern[str]
    model: int
    usage: int = 0
    counts: Mapping[int, str] = {}


_XAI = {1: "completion_tokens", 2: "prompt_tokens", 6: "reasoning_tokens", 7: "cached_tokens"}
_GOOGLE = {
    1: "promptTokenCount", 2: "candidatesTokenCount", 4: "cachedContentTokenCount", 8: "toolUsePromptTokenCount",
    10: "thoughtsTokenCount",
}  # fmt: skip
_VERTEX = {
    1: "promptTokenCount",
    2: "candidatesTokenCount",
    5: "cachedContentTokenCount",
    14: "thoughtsTokenCount",
}


def _service(
    package: str, methods: str, model: int, usage: int = 0, counts: Mapping[int, str] | None = None
) -> _Service:
    return _Service(re.compile(rf"/{package}/(?:{methods})"), model, usage, counts or {})


_GENERATIVE = r"google\.ai\.generativelanguage\.v\w+\.\w+Service"
_PREDICTION = r"google\.cloud\.aiplatform\.v\w+\.PredictionService"
_SERVICES = (
    _service(r"xai_api\.Chat", "GetCompletion", 2, 9, _XAI),
    _service(r"xai_api\.Chat", "GetCompletionChunk", 2, 6, _XAI),
    _service(r"xai_api\.Chat", "StartDeferredCompletion", 2),
    _service(r"xai_api\.Chat", "CompactContext", 1, 4, _XAI),
    _service(r"xai_api\.Sample", "SampleText|SampleTextStreaming", 3, 9, _XAI),
    _service(r"xai_api\.Image", "GenerateImage", 2, 3, _XAI),
    _service(r"xai_api\.Video", "GenerateVideo|ExtendVideo", 3),
    _service(r"xai_api\.Embedder", "Embed", 2),
    _service(_GENERATIVE, "(?:Stream)?GenerateContent|GenerateAnswer", 1, 3, _GOOGLE),
    _service(_GENERATIVE, "(?:Batch)?Embed(?:Contents?|Text)|Generate(?:Text|Message)|Predict(?:LongRunning)?", 1),
    _service(_PREDICTION, "(?:Stream)?GenerateContent", 5, 4, _VERTEX),
    _service(_PREDICTION, "EmbedContent", 1, 2, _VERTEX),
    _service(_PREDICTION, "(?:Stream|Direct)?(?:Raw)?Predict|ServerStreamingPredict", 1),
    _service(r"inference\.GRPCInferenceService", "ModelInfer", 1),
)
_LIKE = re.compile(
    r"/(?:Stream|Streaming|Batch|ServerStreaming|Direct|StreamDirect|Bidi)?(?:GenerateContent|GenerateText|GenerateMessage"
    r"|EmbedContents?|EmbedText|Embed|Predict|RawPredict|GetCompletion|GetCompletionChunk|SampleText|GenerateImage"
    r"|ModelInfer|ModelStreamInfer)$"
)
"""Methods that look as if a model were asked: of a service that is not known, or with a stream of requests. They are
counted, and not recorded."""


@lru_cache(maxsize=256)
def url(target: str, method: str) -> str:
    """The address of a method: of a target's scheme and authority, which say how its host is found, nothing is left."""
    return f"https://{target.rpartition('/')[2].removeprefix('ipv4:').removeprefix('ipv6:')}{method}"


def may_be(address: str) -> bool:
    """Whether a request to a method may be a call of a model, before it is looked at."""
    known = _known(address) is not None or looks_like_one(address)
    return known or any(parser.may_be("POST", address) for parser in parsers())


def looks_like_one(address: str) -> bool:
    """Whether one that cannot be recorded is to be counted."""
    return _LIKE.search(address) is not None


@lru_cache(maxsize=256)
def _known(address: str) -> _Service | None:
    method = "/" + "/".join(address.rsplit("/", 2)[1:])
    return next((one for one in _SERVICES if one.methods.fullmatch(method)), None)


def request(address: str, message: bytes, recorded: Callable[[str], bool]) -> wire.Request | None:
    """The call that a request is; None if it is none. ``recorded``: whether one with this hash is."""
    service = _known(address)
    if service is not None:
        digest = wire.digest("POST", address, message, recorded)
        return wire.Request(digest, partial(_model, service, address, message), None, usage=partial(_usage_of, service))
    added = wire.added("POST", address, message, recorded)
    return added and added._replace(ends=None, usage=added.usage and partial(_usage_by, added.usage), is_bodiless=False)


def _model(service: _Service, address: str, message: bytes) -> str:
    """The name of the model: of Google's resources the last part; the method's where the request names none."""
    named = protobuf.field(message, service.model).decode("utf-8", "replace").rpartition("/")[2]
    return named[:200] or address.rpartition("/")[2]


def _usage_of(service: _Service, body: bytes) -> Usage:
    return wire.highest(_counts(service, message) for message in messages(body))


def _counts(service: _Service, message: bytes) -> dict[str, object]:
    """Return the token counts of an answer, under the names of the vendor's JSON."""
    try:
        told = dict(protobuf.fields(protobuf.field(message, service.usage)))
    except ValueError:
        return {}
    counts = {name: told[number] for number, name in service.counts.items() if number in told}
    return {**counts, "prompt_tokens_details": counts, "completion_tokens_details": counts}


def _usage_by(read: Callable[[bytes], Usage | None], body: bytes) -> Usage:
    """The highest of what a parser reads in the messages of an answer."""
    found = NO_TOKENS
    for message in messages(body):
        found = Usage(*map(max, found, read(message) or NO_TOKENS))
    return found


# -- frames


def frame(message: bytes) -> bytes:
    """A message as gRPC frames it, not compressed."""
    return b"\0" + len(message).to_bytes(4) + message


def messages(body: bytes) -> Iterable[bytes]:
    """The messages of a body, out of their frames."""
    at = 0
    while at < len(body):
        begins = at + 5
        at = begins + int.from_bytes(body[at + 1 : begins])
        yield body[begins:at]


# -- errors

_ONLY_REFUSED = frozenset(
    {
        *("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION", "ABORTED"),
        *("OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS", "UNAUTHENTICATED"),
    }
)
"""Codes that are never the library's own where it does not know what became of a call that it sent."""
_NOT_SENT = re.compile(
    r"failed to connect|connections to all backends failing|resolving|resolution|metadata from plugin|Invalid metadata"
    r"|Sent message larger"
)
"""What the library says of a call that did not leave."""


def was_refused(code: str, details: str, trailing: object) -> bool:
    """Whether a call that failed is known not to have been taken: it never left, or its service says so.

    Of a lost connection and of a service that is busy the library may tell the same code, as UNAVAILABLE. ``trailing``
    is metadata that came with it, which a service sends and the library does not make up. Where nothing tells, the
    outcome is not known.
    """
    if code in _ONLY_REFUSED or trailing or _NOT_SENT.search(details):
        return True
    return code == "RESOURCE_EXHAUSTED" and not details.startswith(("CLIENT: Received", "Received message larger"))
