"""Calls of models at Bedrock by botocore: whole, as event streams, and what breaks off."""

import base64
import contextlib
import json
import struct
import zlib
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError

from runner.core.ledger import AccountKey

from ...support.later import Later
from .wire_server import Reply, WireServer

botocore = Later("botocore")

CLAUDE = "anthropic.claude-3-5-sonnet-20240620-v1:0"
SAID = {
    "output": {"message": {"role": "assistant", "content": [{"text": "whole"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7},
    "metrics": {"latencyMs": 1},
}
OF_ANTHROPIC = {"content": [{"type": "text", "text": "whole"}], "usage": {"input_tokens": 5, "output_tokens": 2}}


def message(kind: str, said: Any, about: str = "event") -> bytes:
    headers = {f":{about}-type": kind, ":content-type": "application/json", ":message-type": about}
    head = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    payload = json.dumps(said).encode()
    start = struct.pack(">II", len(head) + len(payload) + 16, len(head))
    whole = start + struct.pack(">I", zlib.crc32(start)) + head + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def chunk(said: Any) -> bytes:
    return message("chunk", {"bytes": base64.b64encode(json.dumps(said).encode()).decode()})


CONVERSED = [
    message("messageStart", {"role": "assistant"}),
    message("contentBlockDelta", {"delta": {"text": "whole"}, "contentBlockIndex": 0}),
    message("messageStop", {"stopReason": "end_turn"}),
    message("metadata", {"usage": SAID["usage"], "metrics": {"latencyMs": 1}}),
]
INVOKED = [
    chunk({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
    chunk({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 2}}),
]
BROKEN = message("throttlingException", {"message": "slow down"}, "exception")


def stream(pieces: list[bytes], **options: Any) -> Reply:
    return Reply(pieces=pieces, headers={"Content-Type": "application/vnd.amazon.eventstream"}, **options)


@pytest.fixture
def wire():
    with WireServer() as one:
        yield one


@pytest.fixture
def bedrock(wire, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKSECRET")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    config = botocore.config.Config(retries={"max_attempts": 2}, read_timeout=20)
    client = botocore.session.get_session().create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=wire.url.removesuffix("/v1"), config=config
    )
    yield client
    client.close()


ASKED = {"modelId": CLAUDE, "messages": [{"role": "user", "content": [{"text": "it"}]}]}
BODY = {"modelId": CLAUDE, "body": json.dumps({"anthropic_version": "x", "messages": []})}


def converse(client: Any) -> Any:
    return client.converse(**ASKED)["output"]


def converse_stream(client: Any) -> Any:
    with contextlib.closing(client.converse_stream(**ASKED)["stream"]) as events:
        return [*events]


def invoke(client: Any) -> Any:
    with contextlib.closing(client.invoke_model(**BODY)["body"]) as body:
        return json.loads(body.read())


def invoke_stream(client: Any) -> Any:
    with contextlib.closing(client.invoke_model_with_response_stream(**BODY)["body"]) as events:
        return [one["chunk"]["bytes"] for one in events]


REPLIES = {
    converse: lambda: Reply(body=json.dumps(SAID).encode()),
    converse_stream: lambda: stream(CONVERSED),
    invoke: lambda: Reply(body=json.dumps(OF_ANTHROPIC).encode()),
    invoke_stream: lambda: stream(INVOKED),
}
SIGNED = {"x-amz-date", "authorization", "amz-sdk-invocation-id"}


@pytest.mark.parametrize("way", REPLIES)
def test_each_call_is_paid_once_and_leaves_as_without_us(way, wire, bedrock, account, attempt):
    wire.reply = lambda number: REPLIES[way]()
    alone = way(bedrock)
    assert attempt(lambda: way(bedrock)) == alone
    assert attempt(lambda: way(bedrock)) == alone
    assert (len(wire.log), account.paid, account.in_doubt) == (2, {AccountKey("model", "", CLAUDE): 1}, 0)
    assert (account.tokens, account.replayed.total()) == (7, 1)
    assert "AKSECRET" not in json.dumps(account.recorded)
    left = [(*one[:2], [pair for pair in one[2] if pair[0].lower() not in SIGNED], one[3]) for one in wire.log]
    assert left[0] == left[1]


@pytest.mark.parametrize("way", [converse_stream, invoke_stream])
@pytest.mark.parametrize("ends", ["exception", "cut", "in a message"])
def test_a_stream_that_breaks_off_is_in_doubt(ends, way, wire, bedrock, account, attempt):
    whole = REPLIES[way]().pieces
    wire.reply = lambda number: {
        "exception": stream([whole[0], BROKEN]),
        "cut": stream(whole, cut=True),
        "in a message": stream([whole[0], whole[1][:20]]),
    }[ends]
    with contextlib.suppress(botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, ProtocolError):
        attempt(lambda: way(bedrock))
    assert (account.recorded, account.in_doubt) == ({}, 1)
    wire.reply = lambda number: REPLIES[way]()
    attempt(lambda: way(bedrock))
    assert (account.paid.total(), account.in_doubt) == (1, 0)


def test_what_is_throttled_and_tried_again_is_one_call(wire, bedrock, account, attempt):
    wire.reply = lambda number: Reply(status=503, body=b"{}") if number == 1 else Reply(body=json.dumps(SAID).encode())
    assert attempt(lambda: converse(bedrock)) == attempt(lambda: converse(bedrock)) == SAID["output"]
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 0)
