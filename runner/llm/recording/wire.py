"""What is a call of a model, by its request; what of its answer is kept, and how many tokens it took. Pure."""

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from json.encoder import encode_basestring
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic_core import from_json

from runner.core.ledger import NO_TOKENS, AccountKey, Usage, usage_in
from runner.llm.clients.model_names import without_secrets
from runner.llm.recording import descriptions, event_stream, links, multipart
from runner.llm.recording.parsers import parsers

ENDINGS = (
    *("/chat/completions", "/completions", "/responses", "/embeddings", "/moderations"),  # OpenAI's, and many
    *("/images/generations", "/images/edits", "/images/variations"),
    *("/audio/speech", "/audio/transcriptions", "/audio/translations"),
    "/messages",  # Anthropic's
    *("/chat", "/embed", "/rerank"),  # Cohere's, Voyage's, Jina's
    *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"),  # Ollama's own
)
"""How the paths end at which models are asked, with the model's name in the body (or, at Azure, in the path)."""

NAMED_IN_PATH = re.compile(
    r"/(?:models|model|deployments)/([^/:]+)"
    r"(?::(?:stream)?generateContent|:(?:batch)?embedContents?|:(?:stream)?rawPredict"
    r"|:predict(?:LongRunning)?"
    r"|/invoke|/invoke-with-response-stream|/converse|/converse-stream|/chat/completions|/completions|/embeddings|/responses"
    r"|/images/(?:generations|edits|variations)|/audio/(?:speech|transcriptions|translations))$",
    re.IGNORECASE,
)
"""Paths that name the model: Google's, Bedrock's, Azure's."""

_UNNAMED = {"moderations": "moderation", "generations": "image", "edits": "image", "variations": "image"}
"""What is asked where a request names no model, which it need not there: by how its path ends."""

_ENDS = {
    "/chat/completions": rb"^data:\s*\[DONE\]\s*$",
    "/completions": rb"^data:\s*\[DONE\]\s*$",
    "/messages": rb'"type"\s*:\s*"message_stop"',
    "/responses": rb'"type"\s*:\s*"response\.(?:completed|incomplete)"',
    "/audio/speech": rb'"type"\s*:\s*"speech\.audio\.done"',
    "/audio/transcriptions": rb'"type"\s*:\s*"transcript\.text\.done"',
    "/api/chat": rb'"done"\s*:\s*true',
    "/api/generate": rb'"done"\s*:\s*true',
}
"""What the last line of a stream says, where it is known."""

_ALL_SAID = {"streamGenerateContent": rb'"(?:finishReason|functionCall)"\s*:'}
"""What stands in a stream when there is nothing more to say but its end: some stop reading there, to use a tool."""

_ADDRESS = re.compile(rb" at 0x[0-9a-f]+(?=>)")
"""Where an object is that a request shows as Python does: elsewhere in each process."""

_BROKEN = re.compile(rb'^data:\s*\{\s*"error"\s*:\s*[{"]|^event:\s*error|"type"\s*:\s*"(?:error|response\.failed)"')
_KEPT = frozenset({"content-type", "x-request-id", "request-id", "x-amzn-requestid"})
_KEPT |= {"x-amzn-bedrock-input-token-count", "x-amzn-bedrock-output-token-count"}
_OF_AN_ERROR = frozenset({"error", "user_id", "request_id", "type"})
_FRAMING = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_RETRIES = {"retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-should-retry", "x-amzn-errortype"}
KEPT_OF_REFUSAL = _KEPT | _RETRIES
_LOOKED_AT = frozenset(name.encode() for name in KEPT_OF_REFUSAL | _FRAMING)


class Request(NamedTuple):
    """One call as it is asked: the hash of its request, and what a stream of its answer ends with.

    ``model`` gives the model's name: it stands in the request, which is parsed for that only if the call is to be made.
    ``chat``: its answer has choices, one at least. ``usage`` reads its tokens, if a parser knows how.
    ``all_said``: what its reader may take for the end of a stream. ``is_bodiless``: its headers are all of it.
    """

    digest: str
    model: Callable[[], str]
    ends: re.Pattern[bytes] | None
    chat: bool = False
    usage: Callable[[bytes], Usage | None] | None = None
    all_said: re.Pattern[bytes] | None = None
    is_bodiless: bool = False


def may_be(method: str, url: str) -> bool:
    """Whether a request may be a call of a model, before its body is looked at."""
    if method == "POST" and _place(url)[1]:
        return True
    return bool(added := parsers()) and any(parser.may_be(method, url) for parser in added)


IsRecorded = Callable[[str], bool] | None
"""Whether a call with this hash is recorded; None if none is."""


def request(method: str, url: str, body: bytes, recorded: IsRecorded) -> Request | None:
    """The call that a request is; None if it is none. One that is ``recorded`` was parsed when it was made."""
    plain, known, named, ends, chat, all_said = _place(url)
    if method != "POST" or not known:
        return added(method, url, body, recorded)
    found = _digest(method, plain, body, recorded)
    if recorded is not None and recorded(found):
        return Request(found, lambda: _model(body, named) or "", ends, chat, all_said=all_said)
    model = _model(body, named)
    if model is None:
        return added(method, url, body, recorded)
    return Request(found, partial(str, model), ends, chat, None, all_said)


def added(method: str, url: str, body: bytes, recorded: IsRecorded) -> Request | None:
    """The call, if a parser that is installed says it is one."""
    for parser in parsers():
        if parser.may_be(method, url) and (model := parser.model(url, body)) is not None:
            last = parser.last_line(url)
            ends = re.compile(last, re.MULTILINE) if last else None
            name = partial(str, model[:200])
            found = digest(method, url, body, recorded)
            return Request(found, name, ends, usage=parser.usage, is_bodiless=not body)
    return None


def _model(body: bytes, named: str | None) -> str | None:
    """Return the model that a request asks, if any: JSON or a form names it, or where it is sent (``named``)."""
    if body.startswith(b"--") and multipart.is_one(body):
        return (multipart.field(body, "model") or named or "")[:200] or None
    try:
        data = from_json(body, cache_strings="keys")  # as `read`, which would be one more call
    except ValueError:
        try:
            data = json.loads(body)
        except ValueError:
            return None
    model = (data.get("model") or named) if isinstance(data, dict) else None
    return model[:200] if isinstance(model, str) else None


def read(body: bytes) -> Any:
    """Decode JSON. Raises `ValueError`."""
    try:
        return from_json(body, cache_strings="keys")
    except ValueError:  # also where it has half a surrogate pair, is in another encoding, or very deep
        return json.loads(body)


def _digest(method: str, plain: bytes, body: bytes, recorded: IsRecorded) -> str:
    """Return the hash of a request with its links numbered and its descriptions without indentation.

    Versions before this one recorded that of its bytes, or with its links numbered.
    """
    if body.startswith(b"--") and multipart.is_one(body):
        return _hash(method, plain, multipart.comparable(body))
    said = comparable(body) if b" at 0x" in body else body
    bare = alike = links.numbered(said)
    if b"\\n " in alike or b"\\n\\t" in alike:  # here, as a call of a function costs more than both
        bare = descriptions.without_indentation(alike)
    if recorded is not None:
        for before in (said, alike) if alike is not said else (said,):
            if before is not bare and recorded(digest := _hash(method, plain, before)):
                return digest
    found = hashlib.sha256(b"%b\n%b\n" % (method.encode(), plain))  # as `_hash`, which would be one more call
    found.update(bare)
    return found.hexdigest()[:32]


def digest(method: str, url: str, body: bytes, recorded: IsRecorded) -> str:
    """The hash by which a request is known."""
    return _digest(method, _place(url)[0], body, recorded)


def _hash(method: str, plain: bytes, body: bytes) -> str:
    found = hashlib.sha256(b"%b\n%b\n" % (method.encode(), plain))
    found.update(body)
    return found.hexdigest()[:32]


def comparable(text: bytes) -> bytes:
    """A text as it is in each process: without where objects are."""
    return _ADDRESS.sub(b"", text) if b" at 0x" in text else text


@lru_cache(maxsize=256)
def _place(
    url: str,
) -> tuple[bytes, bool, str | None, re.Pattern[bytes] | None, bool, re.Pattern[bytes] | None]:
    """Return an address without secrets, whether it is a model's, and the name in it of a model.

    Then what a stream from there ends with, whether it is a chat, and what its reader may take for the end.
    """
    parts = urlsplit(url)
    named = NAMED_IN_PATH.search(parts.path)
    plain = without_secrets(url)
    ending = next((one for one in _ENDS if parts.path.endswith(one)), None)
    ends = re.compile(_ENDS[ending], re.MULTILINE) if ending else None
    known = named is not None or parts.path.endswith(ENDINGS)
    all_said = next((re.compile(said) for part, said in _ALL_SAID.items() if part in parts.path), None)
    model = unquote(named[1]) if named else _UNNAMED.get(parts.path.rpartition("/")[2])
    return plain.encode(), known, model, ends, ending == "/chat/completions", all_said


# -- answers

STREAMS = re.compile("event-stream|eventstream|x-ndjson|jsonlines")  #: in the type of an answer that comes in pieces
_text = encode_basestring  #: a text as JSON; `json.dumps` would make an encoder for each


class Answer(NamedTuple):
    """What a service answered, as it is kept."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    usage: Usage


def text_of(
    status: int, headers: Iterable[tuple[str, str]], body: bytes, usage: Usage, of: AccountKey, chain: str = ""
) -> str:
    """Return the record of an answer. A ``chain`` by which it is found stands first (`runner.journal.call_slots`)."""
    try:
        said = f'"body": {_text(body.decode())}'
    except UnicodeDecodeError:
        said = f'"base64": "{base64.b64encode(body).decode()}"'
    first = f'"chain": "{chain}", ' if chain else ""
    kept = ""
    for name, value in headers:  # a comprehension would be one more call
        kept += f"{', ' if kept else ''}[{_text(name)}, {_text(value)}]"
    about = f'"status": {status}, "headers": [{kept}], "model": {_text(of.model)}, "agent": {_text(of.agent)}'
    prompt, completion, *details = usage
    tokens = f'"usage": [{prompt}, {completion}]'  # workers of before know these two
    if any(details):
        tokens += f', "details": {details}'
    return f"{{{first}{about}, {tokens}, {said}}}"


def answer_of(found: Mapping[str, Any]) -> Answer:
    """The inverse of `text_of`, of what is in that JSON."""
    body = base64.b64decode(found["base64"]) if "base64" in found else found["body"].encode()
    return Answer(found["status"], [(name, value) for name, value in found["headers"]], body, usage_in(found))


def kept(headers: Iterable[tuple[str, str]], names: frozenset[str] = _KEPT) -> list[tuple[str, str]]:
    """The headers that are recorded: no cookie, no key."""
    found = []
    for one in headers:  # a comprehension would be one more call
        if one[0].lower() in names:
            found.append(one)
    return found


def looked_at(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Return the headers that are used here, of the thirty that services send."""
    found = []
    for name, value in headers:  # a comprehension would be one more call
        if (name := name.lower()) in _LOOKED_AT:
            found.append((name.decode(), value.decode("ascii", "ignore")))
    return found


def unframed(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers without those of a body that is decoded by now."""
    return [(name, value) for name, value in headers if name.lower() not in _FRAMING]


def taken(asked: Request, headers: Mapping[str, str], body: bytes) -> Usage | None:
    """The tokens of an answer that can be taken. None if it is not JSON, reports an error, or is empty."""
    if "json" not in headers.get("content-type", ""):
        return spent(asked, body)
    try:
        data = read(body)
    except ValueError:
        return None
    if isinstance(data, dict) and data.get("error") and data.keys() <= _OF_AN_ERROR:
        return None
    if asked.chat and not (isinstance(data, dict) and data.get("choices")):
        return None
    return (asked.usage and asked.usage(body)) or _of_chat(data) or highest([data])


def spent(asked: Request, body: bytes) -> Usage:
    """The tokens that the answer to a request says it took; zeros where it does not say."""
    return (asked.usage and asked.usage(body)) or usage_of(body)


def is_framed(headers: Mapping[str, str], version: bytes) -> bool:
    """Whether the end of an answer is told from the end of its connection."""
    return version not in (b"HTTP/1.0", b"HTTP/1.1") or "content-length" in headers or "transfer-encoding" in headers


class Tape:
    """A streamed answer as it passes."""

    def __init__(
        self, ends: re.Pattern[bytes] | None, *, framed: bool, all_said: re.Pattern[bytes] | None = None
    ) -> None:
        self._ends, self._framed, self._all_said = ends, framed, all_said
        self._pieces: list[bytes] = []
        self._line = b""
        self.complete = False
        self.broken = False
        self.has_said_all = False

    def take(self, piece: bytes) -> bool:
        """One more piece. True if the answer is complete with it."""
        self._pieces.append(piece)
        if self._all_said is not None and not self.has_said_all:
            self.has_said_all = self._all_said.search(b"".join(self._pieces[-2:])) is not None
        if self._ends is None and event_stream.reports_error(piece):
            self.broken = True
        if self.complete or self._ends is None:
            return False
        *lines, self._line = (self._line + piece).split(b"\n")
        # The last line may come without its end; what ends an answer is short, or ends in braces.
        for line in [*lines, self._line]:
            if _BROKEN.search(line):
                self.broken = True
            elif not self.broken and self._ends.search(line):
                self.complete = True
        return self.complete

    def ended(self) -> bool:
        """End the tape. Returns whether the answer is complete."""
        if self.complete or self.broken or self._ends is not None or not self._framed:
            return False
        self.complete = not event_stream.is_one(body := self.body) or event_stream.is_complete(body)
        return self.complete

    @property
    def came(self) -> bytes:
        """All that passed, as it came."""
        return b"".join(self._pieces)

    @property
    def body(self) -> bytes:
        """All that passed. If the last event lacks its blank line, that is added."""
        body = b"".join(self._pieces)
        if body.endswith(b"\n\n") or not body.lstrip().startswith((b"data:", b"event:")):
            return body
        return body + (b"\n" if body.endswith(b"\n") else b"\n\n")


# -- tokens

_SPENT = re.compile(rb'"usage|eval_count|"tokens"')


def usage_of(body: bytes) -> Usage:
    """The tokens that an answer says it took; zeros where it does not say."""
    if event_stream.is_one(body):
        return highest(event_stream.events_of(body))
    try:
        return highest([read(body)])
    except ValueError:
        lines = [line.removeprefix(b"data:").strip() for line in body.split(b"\n") if _SPENT.search(line)]
    return highest(_read(line) for line in lines)


def _of_chat(data: Any) -> Usage | None:
    """Return the tokens of a usual answer in OpenAI's form, ten times as fast as `highest`; None for any other."""
    counts = data.get("usage") if isinstance(data, dict) and not _MORE & data.keys() else None
    if not isinstance(counts, dict) or not counts.keys() <= _OF_CHAT:
        return None
    for name in _DETAILS_OF_CHAT:
        if (details := counts.get(name)) and (not isinstance(details, dict) or any(details.values())):
            return None
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int:
        return None
    return Usage(prompt, completion) if 0 <= prompt < _NO_COUNT and 0 <= completion < _NO_COUNT else None


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def highest(events: Iterable[Any]) -> Usage:
    """The highest count that what a service told reports: services count up during a stream."""
    found = NO_TOKENS
    for one in events:
        for data in (one, one.get("message"), one.get("response")) if isinstance(one, dict) else ():
            if isinstance(data, dict):
                found = Usage(*map(max, found, _tokens(data)))
    return found


def _tokens(data: dict[str, Any]) -> Usage:
    """What one message tells. OpenAI and Google count what is cached in the prompt, Anthropic beside it."""
    usage = data.get("usage") or data.get("usageMetadata") or data.get("amazon-bedrock-invocationMetrics") or data
    if not isinstance(usage, dict):
        return NO_TOKENS
    inner = usage.get("tokens")
    usage = inner if isinstance(inner, dict) else usage

    of = _counts(usage)
    *prompts, chat, answer, created = [_counts(usage[name]) if usage.get(name) else _NO_COUNTS for name in _DETAILS]
    read = of["cache_read_input_tokens"] or of["cacheReadInputTokens"]  # Anthropic's; Bedrock's
    written = of["cache_creation_input_tokens"] or of["cacheWriteInputTokens"]
    prompt = of["prompt_tokens"] or of["promptTokenCount"] + of["toolUsePromptTokenCount"]
    completion = of["completion_tokens"] or of["candidatesTokenCount"] + of["thoughtsTokenCount"]
    return Usage(
        prompt
        or of["prompt_eval_count"]
        or of["inputTokenCount"]
        or (of["input_tokens"] or of["inputTokens"]) + read + written,
        completion or of["output_tokens"] or of["outputTokens"] or of["outputTokenCount"] or of["eval_count"],
        read
        or max(prompts[0]["cached_tokens"], prompts[1]["cached_tokens"])
        or of["cachedContentTokenCount"]
        or of["prompt_cache_hit_tokens"],  # DeepSeek's
        written or max(prompts[0]["cache_write_tokens"], prompts[1]["cache_write_tokens"]),
        created["ephemeral_1h_input_tokens"],
        max(chat["reasoning_tokens"], answer["reasoning_tokens"]) or of["thoughtsTokenCount"],
    )


_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details"),
    *("completion_tokens_details", "output_tokens_details"),
    "cache_creation",
)
_DETAILS_OF_CHAT = ("prompt_tokens_details", "completion_tokens_details")
_OF_CHAT = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", *_DETAILS_OF_CHAT})
_MORE = frozenset({"message", "response"})  #: where `highest` looks, too
_NO_COUNT = 2**50  #: what is as much is no count of tokens, and their sum would be more than the store can add to
_NO_COUNTS: defaultdict[str, int] = defaultdict(int)  #: most answers say nothing of these


def _counts(counts: Any) -> defaultdict[str, int]:
    """The counts by name in what is told; 0 for all others."""
    found: defaultdict[str, int] = defaultdict(int)
    for name, one in counts.items() if isinstance(counts, dict) else ():
        if isinstance(one, int | float) and not isinstance(one, bool) and 0 < one < _NO_COUNT:
            found[name] = int(one)
    return found
