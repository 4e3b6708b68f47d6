"""A model server for agents of any framework: it speaks the vendors' protocols, and counts requests by their bytes.

Its answers follow from the conversation alone, so the same question gets the same answer, however often it is asked.
"""

import contextlib
import json
import re
import struct
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from runner.modelserver import protocols
from runner.modelserver.answers import Answer, Call
from runner.modelserver.request import ModelRequest
from runner.modelserver.server import WAYS

ENDPOINTS = {"/chat/completions": "openai", "/messages": "anthropic", "/responses": "responses"}
DONE = "All five are looked at."


def script(found: int, batches: tuple[int, ...], last: str) -> Answer:
    """What is answered after so many tools have been used: the next batch of calls side by side, or the end."""
    begun = 0
    for size in batches:
        if found == begun:
            return Answer(calls=[Call("look", {"i": i}) for i in range(begun, begun + size)])
        begun += size
    return Answer(calls=[Call(last, {"answer": DONE})]) if last else Answer(DONE)


MADE_UP = re.compile(rb'"(?:pyd_ai_[0-9a-f]{32}|tooluse_[\w-]{22})"')
"""The ids of pydantic-ai and Strands for uses of tools that Google's answers give none."""


VOLATILE = {"date", "x-amz-date", "amz-sdk-invocation-id", "x-ms-client-request-id", "x-client-request-id"}
"""Headers that say another thing each time: that they are sent is compared, and not what they say."""
FLAGS = re.compile(r"(?<= m/)\S+")
"""What boto3 has used so far, in the order of a set."""


def steady(name: str, value: str | bytes) -> str:
    """A header as it is sent each time."""
    said = str(value)
    if name in VOLATILE or said.startswith("AWS4-"):
        return f"{name}: ..."
    return f"{name}: {FLAGS.sub(lambda found: ','.join(sorted(found[0].split(','))), said)}"


class Came(NamedTuple):
    """A request that came."""

    request: bytes
    """All of it: where to, its headers, its body."""
    before: int
    """How often it came before."""


class Asked:
    """What a server is asked. ``asked`` is called when a request comes, ``midway`` when half of its answer has left."""

    root = ""  #: where it is

    def __init__(self, batches: tuple[int, ...], last: str = "") -> None:
        self.batches, self.last = batches, last
        self.asked: Callable[[Came], object] = lambda _: None
        self.midway: Callable[[Came], object] = lambda _: None
        self.requests: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def take(self, path: str, headers: Iterable[tuple[str, str | bytes]], raw: bytes) -> Came:
        """A request came. It is known by its bytes, but for whatever its client makes up at random."""
        ids = dict[bytes, bytes]()
        raw = MADE_UP.sub(lambda found: ids.setdefault(found[0], b"made up %d" % len(ids)), raw)
        told = sorted(steady(name.lower(), value) for name, value in headers)
        request = "\n".join([path, *told, "", ""]).encode() + raw
        with self._lock:
            self.requests[request] += 1
            return Came(request, self.requests[request] - 1)

    def forget(self) -> Counter[bytes]:
        """All that came; it counts from 0 again."""
        with self._lock:
            found, self.requests = self.requests, Counter()
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks is killed: that it went is no news, and would hide what is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Models(Asked):
    """A server that speaks HTTP."""

    def __init__(self, batches: tuple[int, ...], last: str = "") -> None:
        super().__init__(batches, last)
        self._http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"models": self}))
        self.root = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    models: Models

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        raw = self._body()
        path = self.path.partition("?")[0]
        body = json.loads(raw)
        self._came = self.models.take(self.path, self.headers.items(), raw)
        self.models.asked(self._came)
        with contextlib.suppress(OSError):
            self._answer(path, body)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _answer(self, path: str, body: dict[str, Any]) -> None:
        if "enerateContent" in path:
            return self._google(path, body)
        if "/converse" in path:
            return self._bedrock(path, body)
        protocol = next(kind for end, kind in ENDPOINTS.items() if path.endswith(end))
        request = ModelRequest(1, protocol, path, body)
        models = self.models  # whose agents tell results as text, if the end is a call
        answer = self._said(sum(models.batches[: request.turn]) if models.last else len(request.results))
        if request.stream and request.model.startswith("mistral"):
            return self._stream("text/event-stream", _as_mistral(protocols.openai_body(request, answer)))
        if request.stream:
            return self._stream("text/event-stream", WAYS[protocol][1](request, answer))
        return self._whole(WAYS[protocol][0](request, answer))

    def _said(self, found: int) -> Answer:
        return script(found, self.models.batches, self.models.last)

    def _google(self, path: str, body: dict[str, Any]) -> None:
        parts = [part for content in body["contents"] for part in content.get("parts", ())]
        answer = self._said(sum("functionResponse" in part or "function_response" in part for part in parts))
        said = [{"functionCall": {"name": one.name, "args": one.arguments}} for one in answer.calls]
        content = {"role": "model", "parts": said or [{"text": answer.text}]}
        found = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8},
        }
        if "streamGenerateContent" in path:
            return self._stream("text/event-stream", [f"data: {json.dumps(found)}\r\n\r\n".encode()])
        return self._whole(found)

    def _bedrock(self, path: str, body: dict[str, Any]) -> None:
        parts = [part for message in body["messages"] for part in message["content"]]
        answer = self._said(sum("toolResult" in part for part in parts))
        said: list[Any] = [
            {"toolUse": {"toolUseId": f"use-{one.arguments['i']}", "name": one.name, "input": one.arguments}}
            for one in answer.calls
        ] or [{"text": answer.text}]
        stop = "tool_use" if answer.calls else "end_turn"
        usage = {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}
        if not path.endswith("-stream"):
            message = {"role": "assistant", "content": said}
            about = {"stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}}
            self._whole({"output": {"message": message}, **about})
            return
        events: list[tuple[str, Any]] = [("messageStart", {"role": "assistant"})]
        for n, one in enumerate(said):
            if use := one.get("toolUse"):
                begun = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
                events.append(("contentBlockStart", {"contentBlockIndex": n, "start": begun}))
                delta: Any = {"toolUse": {"input": json.dumps(use["input"])}}
            else:
                delta = {"text": one["text"]}
            events.append(("contentBlockDelta", {"contentBlockIndex": n, "delta": delta}))
            events.append(("contentBlockStop", {"contentBlockIndex": n}))
        events += [("messageStop", {"stopReason": stop}), ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})]
        self._stream("application/vnd.amazon.eventstream", [_event(kind, data) for kind, data in events])

    def _whole(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.models.midway(self._came)
        self.wfile.write(data[len(data) // 2 :])

    def _stream(self, kind: str, pieces: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pieces = [*pieces]
        for n, piece in enumerate(pieces):
            if n == len(pieces) // 2:
                self.models.midway(self._came)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def _as_mistral(body: dict[str, Any]) -> list[bytes]:
    """Mistral streams each call whole."""
    choice = body["choices"][0]
    calls = [{**one, "index": n} for n, one in enumerate(choice["message"].get("tool_calls", ()))]
    message = {**choice["message"], "content": choice["message"]["content"] or ""}
    if calls:
        message["tool_calls"] = calls
    said = {**body, "choices": [{"index": 0, "delta": message, "finish_reason": choice["finish_reason"]}]}
    return [f"data: {json.dumps(said)}\n\n".encode(), b"data: [DONE]\n\n"]


def _event(kind: str, data: Any) -> bytes:
    """One event of an AWS event stream."""
    about = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in about.items()
    )
    payload = json.dumps(data).encode()
    head = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    told = head + struct.pack("!I", zlib.crc32(head)) + headers + payload
    return told + struct.pack("!I", zlib.crc32(told))
