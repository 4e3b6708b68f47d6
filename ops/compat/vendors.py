"""Model servers for files that ask Gemini or Bedrock, which `runner.testing.ModelServer` does not speak."""

import json
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from runner.testing import Answer, Call


def answer(request: Any) -> Answer | None:
    """What a model says to a quickstart: it uses the first tool on offer once, and then it answers."""
    tools = {name: schema for name, schema in request.tools.items() if not name.startswith(("final_", "transfer_to"))}
    if tools and not request.results and not request.turn:
        name, schema = next(iter(tools.items()))
        return Answer(calls=[Call(name, filled(schema))])
    if (last := next((name for name in request.tools if name.startswith(("final_", "ResponseFormat"))), None)) or (
        last := request.must_call
    ):
        return Answer(calls=[Call(last, filled(request.tools[last]))])
    if request.schema and "properties" in request.schema:
        return Answer(json.dumps(filled(request.schema)))
    if "final_answer(" in request.text:  # of agents that write code
        return Answer("Thought: I know it.\n<code>\nfinal_answer('done')\n</code>")
    return Answer("It is done. APPROVE")


def filled(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """A value of a JSON schema."""
    root = root or schema
    if "$ref" in schema:
        return filled(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return filled(schema[several][0], root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        wanted = schema.get("properties", {})
        return {name: filled(wanted[name], root) for name in schema.get("required", wanted) if name in wanted}
    simple = {"array": ["one"], "integer": 3, "number": 3.0, "boolean": True, "null": None}
    return simple.get(kind, "5 * 7")


class Vendors:
    """Gemini at `url`, and Bedrock's ``ConverseStream`` there, too. ``requests`` says how many came."""

    def __init__(self) -> None:
        self.requests = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"vendors": self}))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """What points clients here."""
        return {
            "GOOGLE_API_KEY": "key",
            "GOOGLE_GENAI_USE_VERTEXAI": "FALSE",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class _Handler(BaseHTTPRequestHandler):
    vendors: Vendors
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.vendors.requests += 1
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "converse" in self.path:
            self._send("application/vnd.amazon.eventstream", b"".join(_of_bedrock(asked)))
            return
        said = json.dumps(_of_gemini(asked)).encode()
        is_stream = "streamGenerateContent" in self.path
        self._send(*(("text/event-stream", b"data: " + said + b"\n\n") if is_stream else ("application/json", said)))

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _of_gemini(asked: dict[str, Any]) -> dict[str, Any]:
    offered = [one for tool in asked.get("tools", []) for one in tool.get("functionDeclarations", [])]
    used = any("functionResponse" in part for content in asked["contents"] for part in content["parts"])
    part: dict[str, Any] = {"text": "It is done."}
    if offered and not used:
        names = ("parameters", "parametersJsonSchema", "parameters_json_schema")
        schema = next((offered[0][name] for name in names if name in offered[0]), {"type": "object"})
        part = {"functionCall": {"name": offered[0]["name"], "args": filled(schema)}}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


def _of_bedrock(asked: dict[str, Any]) -> list[bytes]:
    offered = [one["toolSpec"] for one in asked.get("toolConfig", {}).get("tools", []) if "toolSpec" in one]
    used = any("toolResult" in part for message in asked["messages"] for part in message["content"])
    if offered and not used:
        start = {"toolUse": {"toolUseId": "use-1", "name": offered[0]["name"]}}
        schema = offered[0]["inputSchema"]["json"]
        events = [
            ("contentBlockStart", {"start": start, "contentBlockIndex": 0}),
            (
                "contentBlockDelta",
                {"delta": {"toolUse": {"input": json.dumps(filled(schema))}}, "contentBlockIndex": 0},
            ),
        ]
    else:
        events = [("contentBlockDelta", {"delta": {"text": "It is done."}, "contentBlockIndex": 0})]
    usage = {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}
    return [
        _message(kind, said)
        for kind, said in [
            ("messageStart", {"role": "assistant"}),
            *events,
            ("contentBlockStop", {"contentBlockIndex": 0}),
            ("messageStop", {"stopReason": "tool_use" if offered and not used else "end_turn"}),
            ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
        ]
    ]


def _message(kind: str, said: Any) -> bytes:
    """One message of an AWS event stream."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    head = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    payload = json.dumps(said).encode()
    start = struct.pack(">II", len(head) + len(payload) + 16, len(head))
    whole = start + struct.pack(">I", zlib.crc32(start)) + head + payload
    return whole + struct.pack(">I", zlib.crc32(whole))
