"""What a call of a model by gRPC is, told from its method and the bytes of its request and its answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.ledger import Usage
from runner.llm.list_prices import configured
from runner.llm.recording import protobuf, rpc

XAI, GOOGLE = "/xai_api.Chat", "/google.ai.generativelanguage.v1beta.GenerativeService"
VERTEX = "/google.cloud.aiplatform.v1.PredictionService"
ENDPOINT = b"projects/p/locations/l/publishers/google/models/gemini"


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """As protobuf serializes it."""
    return b"".join(
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields
    )


TEXT = (2, b"x" * 300)
XAI_USAGE = message((1, 30), (2, 500), (3, 530), (6, 20), (7, 400))
GOOGLE_USAGE = message((1, 500), (2, 30), (3, 540), (4, 400), (8, 5), (10, 10))
VERTEX_USAGE = message((1, 500), (2, 30), (3, 540), (5, 400), (14, 10))
OF_XAI, OF_GOOGLE = Usage(500, 30, 400, 0, 0, 20), Usage(505, 40, 400, 0, 0, 10)


@pytest.mark.parametrize(
    ("method", "asked", "model", "answers", "usage"),
    [
        (f"{XAI}/GetCompletion", message((1, b"it"), (2, b"grok-4")), "grok-4", [(9, XAI_USAGE)], OF_XAI),
        (f"{XAI}/GetCompletionChunk", message((2, b"grok-4")), "grok-4", [(6, b""), (6, XAI_USAGE)], OF_XAI),
        (f"{GOOGLE}/GenerateContent", message((1, b"models/gemini"), TEXT), "gemini", [(3, GOOGLE_USAGE)], OF_GOOGLE),
        (f"{GOOGLE}/StreamGenerateContent", message((1, b"models/gemini")), "gemini", [(3, GOOGLE_USAGE)], OF_GOOGLE),
        (f"{VERTEX}/GenerateContent", message((5, ENDPOINT), TEXT), "gemini", [(4, VERTEX_USAGE)],
         Usage(500, 40, 400, 0, 0, 10)),
        (f"{VERTEX}/Predict", message((1, b"projects/p/endpoints/7")), "7", [(1, b"any")], Usage()),
        (f"{GOOGLE}/EmbedContent", b"\xff\xff no protobuf", "EmbedContent", [(1, b"any")], Usage()),
    ],
)  # fmt: skip
def test_the_model_and_the_tokens(method: str, asked: bytes, model: str, answers: Any, usage: Usage) -> None:
    address = rpc.url("dns:///api.example.com:443", method)
    assert rpc.may_be(address)
    found = rpc.request(address, asked, lambda _: False)
    assert found is not None
    assert found.usage is not None
    body = b"".join(rpc.frame(message((15, b"more"), one)) for one in answers)
    assert (found.model(), found.usage(body)) == (model, usage)


@pytest.mark.parametrize(
    ("method", "field", "model"),
    [
        (f"{XAI}/GetCompletion", 2, b"grok-4"),
        (f"{GOOGLE}/GenerateContent", 1, b"models/gemini-2.5-flash"),
        (f"{VERTEX}/GenerateContent", 5, ENDPOINT + b"-2.5-pro"),
        (f"{VERTEX}/RawPredict", 1, b"projects/p/locations/l/publishers/anthropic/models/claude-sonnet-4-5@20250929"),
    ],
)
def test_the_list_of_prices_has_the_models_by_their_names(method: str, field: int, model: bytes) -> None:
    found = rpc.request(rpc.url("api.example.com", method), message((field, model)), lambda _: False)
    assert found is not None
    cost = configured().cost(found.model(), Usage(1_000_000), 1)
    assert cost is not None
    assert 0.01 < cost < 20


def test_the_same_request_to_the_same_method_of_the_same_host_is_the_same_call() -> None:
    def digest(target: str, method: str, asked: bytes) -> str:
        found = rpc.request(rpc.url(target, method), asked, lambda _: False)
        assert found is not None
        return found.digest

    whole, stream = f"{XAI}/GetCompletion", f"{XAI}/GetCompletionChunk"
    assert digest("dns:///api.x.ai:443", whole, b"\x12\x01a") == digest("api.x.ai:443", whole, b"\x12\x01a")
    others = [("api.x.ai", whole, b"\x12\x01a"), ("api.x.ai:443", stream, b"\x12\x01a"), ("api.x.ai:443", whole, b"")]
    assert len({digest(*one) for one in [*others, ("api.x.ai:443", whole, b"\x12\x01a")]}) == 4


@pytest.mark.parametrize(
    ("method", "may_be", "is_recorded"),
    [
        (f"{XAI}/StartDeferredCompletion", True, True),
        (f"{XAI}/GetDeferredCompletion", False, False),
        ("/xai_api.Image/GenerateImage", True, True),
        (f"{GOOGLE}/CountTokens", False, False),
        (f"{GOOGLE}/BidiGenerateContent", True, False),
        (f"{VERTEX}/StreamRawPredict", True, True),
        (f"{VERTEX}/StreamingPredict", True, False),
        ("/inference.GRPCInferenceService/ModelInfer", True, True),
        ("/theirs.Models/GenerateContent", True, False),
        ("/shop.Orders/List", False, False),
    ],
)
def test_which_methods_are_of_models(method: str, *, may_be: bool, is_recorded: bool) -> None:
    address = rpc.url("localhost:1", method)
    found = rpc.request(address, b"", lambda _: False)
    assert (rpc.may_be(address), found is not None) == (may_be, is_recorded)


@given(st.lists(st.binary(max_size=300)))
def test_messages_come_out_of_their_frames_as_they_were(messages: list[bytes]) -> None:
    assert list(rpc.messages(b"".join(map(rpc.frame, messages)))) == messages


@given(st.binary(max_size=100))
def test_of_bytes_that_are_no_message_nothing_is_read(text: bytes) -> None:
    assert isinstance(protobuf.field(text, 1), bytes)
    found = rpc.request(rpc.url("localhost:1", f"{XAI}/GetCompletion"), text, lambda _: False)
    assert found is not None
    assert found.usage is not None
    assert isinstance(found.usage(rpc.frame(text)), Usage)


@pytest.mark.parametrize(
    ("code", "details", "trailing", "refused"),
    [
        ("INVALID_ARGUMENT", "no such model", (), True),
        ("UNAUTHENTICATED", "no key", (), True),
        ("RESOURCE_EXHAUSTED", "quota", (), True),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5 vs. 4)", (), False),
        ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (5 vs. 4)", (), True),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: Connection refused", (), True),
        ("UNAVAILABLE", "Stream removed (Socket closed)", (), False),
        ("UNAVAILABLE", "overloaded", (), False),
        ("UNAVAILABLE", "overloaded", (("retry-after", "1"),), True),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", (), False),
        ("CANCELLED", "Locally cancelled by application!", (), False),
        ("INTERNAL", "Exception deserializing response!", (), False),
    ],
)
def test_a_call_that_failed_is_in_doubt_unless_it_is_known_not_to_have_been_taken(
    code: str, details: str, trailing: Any, *, refused: bool
) -> None:
    assert rpc.was_refused(code, details, trailing) is refused
