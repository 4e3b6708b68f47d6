"""Programs whose models are asked by gRPC: by the SDK of xAI, pydantic-ai with it, and clients that Google generates,
also for Vertex AI.

Their model is a server of gRPC, made of the classes that the vendors generate: those stand only in the environment of
these rows, so they are imported when a server is made.
"""

import importlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from matrix_agents import PYDANTIC_AI, PYDANTIC_WAYS, rows
from matrix_clients import DURABLE_LOOK
from matrix_models import Asked, script
from matrix_program import DIG, Row

from runner.modelserver.answers import Answer

GENERATIVE, PREDICTION = "google.ai.generativelanguage.v1beta", "google.cloud.aiplatform.v1"

_XAI = """
from xai_sdk import @CLIENT@
from xai_sdk.chat import tool, tool_result, user

TOOL = tool(name="look", description="Looks.", parameters=SCHEMA)
@MADE@

@DEF@main():
    @MADE HERE@
    chat = client.chat.create(model="grok-4", tools=[TOOL])
    chat.append(user("Dig."))
    while True:
        @ASK@
        chat.append(said)
        if not said.tool_calls:
            return print(said.content)
        for call in said.tool_calls:
            found = look(**json.loads(call.function.arguments))
            chat.append(tool_result(found, tool_call_id=call.id))
"""
_XAI_MADE = 'client = @CLIENT@(api_key="sk-secret", api_host="@ROOT@", use_insecure_channel=True)'
_XAI_WAYS = {
    "sync": "said = chat.sample()",
    "streamed": "for said, _ in chat.stream():\n            pass",
    "async": "said = await chat.sample()",
    "async streamed": "async for said, _ in chat.stream():\n            pass",
}

_GOOGLE = """
import grpc
@IMPORTS@

PARAMETERS = google.Schema(type_="OBJECT", properties={"i": google.Schema(type_="INTEGER")})
DECLARED = google.FunctionDeclaration(name="look", description="Looks.", parameters=PARAMETERS)
@MADE@

@DEF@main():
    @MADE HERE@
    contents = [google.Content(role="user", parts=[google.Part(text="Dig.")])]
    while True:
        tools = [google.Tool(function_declarations=[DECLARED])]
        asked = google.GenerateContentRequest(model="@MODEL@", contents=contents, tools=tools)
        @ASK@
        contents.append(google.Content(role="model", parts=parts))
        uses = [part.function_call for part in parts if "function_call" in part]
        if not uses:
            return print("".join(part.text for part in parts))
        found = [google.FunctionResponse(name="look", response={"found": look(int(one.args["i"]))}) for one in uses]
        contents.append(google.Content(role="user", parts=[google.Part(function_response=one) for one in found]))
"""
_GOOGLE_MADE = """channel = grpc.@AIO@insecure_channel("@ROOT@")
client = google.@CLIENT@(transport=transports.@SERVICE@Grpc@IO@Transport(channel=channel))"""
_OF_GOOGLE = {
    "google-ai-generativelanguage": (
        "GenerativeService",
        "models/gemini-2.5-flash",
        """from google.ai import generativelanguage as google
from google.ai.generativelanguage_v1beta.services.generative_service import transports""",
    ),
    "google-cloud-aiplatform": (
        "PredictionService",
        "projects/p/locations/l/publishers/google/models/gemini-2.5-flash",
        """from google.cloud import aiplatform_v1 as google
from google.cloud.aiplatform_v1.services.prediction_service import transports""",
    ),
}
"""Each package of Google's: its service, how it names a model, its imports."""
_PARTS = "parts = [part for one in {} for part in one.candidates[0].content.parts]"
_GOOGLE_WAYS = {
    "sync": _PARTS.format("[client.generate_content(asked)]"),
    "streamed": _PARTS.format("client.stream_generate_content(asked)"),
    "async": _PARTS.format("[await client.generate_content(asked)]"),
    "async streamed": "pieces = [one async for one in await client.stream_generate_content(asked)]\n        "
    + _PARTS.format("pieces"),
}
_END = '\n\nif __name__ == "__main__":\n    @MAIN@\n'


def _row(package: str, code: str, made: str, ask: str, kinds: tuple[str, str]) -> Row:
    """A program whose client is made with its file, or with its event loop, as that of an awaited one has to be."""
    awaits = "await" in ask or "async" in ask
    here = made.replace("\n", "\n    ")
    marks = {
        "@ASK@": ask, "@MADE@": "" if awaits else made, "@MADE HERE@": here if awaits else "pass",
        "@DEF@": "async def " if awaits else "def ", "@MAIN@": "asyncio.run(main())" if awaits else "main()",
        "@CLIENT@": kinds[awaits], "@IO@": "AsyncIO" if awaits else "", "@AIO@": "aio." if awaits else "",
    }  # fmt: skip
    whole = DIG + DURABLE_LOOK.replace("@HEAD@", "") + code + _END
    for mark, value in marks.items():
        whole = whole.replace(mark, value)
    return Row("rpc", package, whole)


RPC_CLIENTS: dict[str, Row] = {}
for _way, _ask in _XAI_WAYS.items():
    RPC_CLIENTS[f"xAI SDK, {_way}"] = _row("xai-sdk", _XAI, _XAI_MADE, _ask, ("Client", "AsyncClient"))
for _package, (_service, _model, _imports) in _OF_GOOGLE.items():
    _code = _GOOGLE.replace("@IMPORTS@", _imports).replace("@MODEL@", _model)
    _made, _kinds = _GOOGLE_MADE.replace("@SERVICE@", _service), (f"{_service}Client", f"{_service}AsyncClient")
    for _way, _ask in _GOOGLE_WAYS.items():
        RPC_CLIENTS[f"{_package}, {_way}"] = _row(_package, _code, _made, _ask, _kinds)

_XAI_MODEL = """
from pydantic_ai.models.xai import XaiModel
from pydantic_ai.providers.xai import XaiProvider
model = XaiModel("grok-4", provider=XaiProvider(api_key="sk-secret", api_host="@ROOT@"))
"""
RPC = {
    **RPC_CLIENTS,
    **rows("pydantic-ai xAI", "rpc", "xai-sdk", PYDANTIC_AI.replace("@MODEL@", _XAI_MODEL.strip()), PYDANTIC_WAYS),
}


class RpcModels(Asked):
    """A server that speaks gRPC, as xAI and Google do."""

    def __init__(self, batches: tuple[int, ...], last: str = "") -> None:
        super().__init__(batches, last)
        grpc = importlib.import_module("grpc")
        self._server = grpc.server(ThreadPoolExecutor(16))
        speakers = {
            "xai_api.Chat": Xai(self),
            f"{GENERATIVE}.GenerativeService": Google(self, "google.ai.generativelanguage"),
            f"{PREDICTION}.PredictionService": Google(self, "google.cloud.aiplatform_v1"),
        }
        for service, speaker in speakers.items():
            made = {name: self._handler(grpc, f"/{service}/{name}", *how) for name, how in speaker.methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, made),))
        self.root = f"localhost:{self._server.add_insecure_port('localhost:0')}"

    def _handler(self, grpc: Any, path: str, answered: Callable[[bytes], list[bytes]], streams: bool) -> Any:
        def pieces(raw: bytes, context: Any) -> Iterator[bytes]:
            came = self.take(path, context.invocation_metadata(), raw)
            self.asked(came)
            found = answered(raw)
            for number, piece in enumerate(found):
                if number == len(found) // 2:
                    self.midway(came)
                yield piece

        if streams:
            return grpc.unary_stream_rpc_method_handler(pieces)
        return grpc.unary_unary_rpc_method_handler(lambda raw, context: list(pieces(raw, context))[-1])

    def said(self, found: int) -> Answer:
        """What is answered after so many tools have been used."""
        return script(found, self.batches, self.last)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()


class Xai:
    """What xAI answers."""

    def __init__(self, models: RpcModels) -> None:
        self._models = models
        self._proto = importlib.import_module("xai_sdk.proto")
        self._chat = self._proto.chat_pb2
        self._usage = self._proto.usage_pb2.SamplingUsage(prompt_tokens=5, completion_tokens=3, total_tokens=8)
        self.methods = {"GetCompletion": (self._whole, False), "GetCompletionChunk": (self._chunks, True)}

    def _said(self, raw: bytes) -> tuple[dict[str, Any], Any]:
        chat = self._chat
        asked = chat.GetCompletionsRequest.FromString(raw)
        answer = self._models.said(sum(one.role == chat.ROLE_TOOL for one in asked.messages))
        calls = [
            chat.ToolCall(
                id=f"call-{one.arguments['i']}",
                type=chat.TOOL_CALL_TYPE_CLIENT_SIDE_TOOL,
                function=chat.FunctionCall(name=one.name, arguments=json.dumps(one.arguments)),
            )
            for one in answer.calls
        ]
        ends = self._proto.sample_pb2
        return {"content": answer.text, "tool_calls": calls}, ends.REASON_TOOL_CALLS if calls else ends.REASON_STOP

    def _whole(self, raw: bytes) -> list[bytes]:
        chat, (said, reason) = self._chat, self._said(raw)
        message = chat.CompletionMessage(role=chat.ROLE_ASSISTANT, **said)
        output = chat.CompletionOutput(index=0, finish_reason=reason, message=message)
        return [
            chat.GetChatCompletionResponse(
                id="a", model="grok-4", outputs=[output], usage=self._usage
            ).SerializeToString()
        ]

    def _chunks(self, raw: bytes) -> list[bytes]:
        chat, (said, reason) = self._chat, self._said(raw)
        half = len(said["content"]) // 2
        deltas = [{"content": said["content"][:half]}, {**said, "content": said["content"][half:]}, {}]
        found = [
            chat.CompletionOutputChunk(index=0, delta=chat.Delta(role=chat.ROLE_ASSISTANT, **one)) for one in deltas
        ]
        found[-1].finish_reason = reason
        about = {"id": "a", "model": "grok-4", "usage": self._usage}
        return [chat.GetChatCompletionChunk(outputs=[one], **about).SerializeToString() for one in found]


class Google:
    """What Google answers, by a package that it generates."""

    def __init__(self, models: RpcModels, package: str) -> None:
        self._models = models
        self._types = importlib.import_module(package)
        self.methods = {
            "GenerateContent": (self._whole, False),
            "StreamGenerateContent": (lambda raw: self._answers(raw, 2), True),
        }

    def _whole(self, raw: bytes) -> list[bytes]:
        return self._answers(raw, 1)

    def _answers(self, raw: bytes, pieces: int) -> list[bytes]:
        types = self._types
        asked = types.GenerateContentRequest.deserialize(raw)
        parts = [part for content in asked.contents for part in content.parts]
        answer = self._models.said(sum("function_response" in part for part in parts))
        calls = [types.Part(function_call={"name": one.name, "args": one.arguments}) for one in answer.calls]
        size = -(-len(answer.text) // pieces) or 1
        texts = [types.Part(text=answer.text[at : at + size]) for at in range(0, len(answer.text), size)]
        batches = [[one] for one in texts] if not calls else [[], calls][2 - pieces :]
        usage = {"prompt_token_count": 5, "candidates_token_count": 3, "total_token_count": 8}
        return [
            types.GenerateContentResponse.serialize(
                types.GenerateContentResponse(
                    candidates=[{"content": {"role": "model", "parts": batch}, "finish_reason": "STOP"}],
                    usage_metadata=usage,
                )
            )
            for batch in batches
        ]
