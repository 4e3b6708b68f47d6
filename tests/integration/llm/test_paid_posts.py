"""What is paid for beside texts: speech, transcriptions, images, moderations, embeddings, rerankers, by each client."""

import asyncio
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from runner.core.ledger import AccountKey

from ...support.later import Later
from .wire_server import Reply, WireServer

openai = Later("openai")

SOUND = bytes(range(256)) * 64
SAID = {"text": "whole", "usage": {"type": "tokens", "input_tokens": 5, "output_tokens": 2}}
PIECES = [
    b'data: {"type": "transcript.text.delta", "delta": "whole"}\n\n',
    b'data: {"type": "transcript.text.done", "text": "whole", "usage": {"input_tokens": 5, "output_tokens": 2}}\n\n',
]
JSON = {
    "/v1/moderations": {"id": "m", "model": "omni", "results": [{"flagged": False}]},
    "/v1/images/edits": {"created": 1, "data": [{"b64_json": "cGl4ZWxz"}], "usage": {"input_tokens": 5}},
    "/v1/images/variations": {"created": 1, "data": [{"b64_json": "cGl4ZWxz"}]},
    "/v1/images/generations": {"created": 1, "data": [{"b64_json": "cGl4ZWxz"}]},
    "/v1/audio/transcriptions": SAID,
    "/v1/audio/translations": {"text": "whole"},
    "/v1/embeddings": {"object": "list", "model": "e", "data": [{"index": 0, "embedding": [0.5]}]},
    "/v1/rerank": {"results": [{"index": 0, "relevance_score": 0.5}]},
}  # fmt: skip


def answered(wire: WireServer) -> Callable[[int], Reply]:
    def reply(_: int) -> Reply:
        _, path, _, body = wire.log[-1]
        if path.endswith("/speech"):
            return Reply(body=SOUND, headers={"Content-Type": "audio/mpeg"})
        if b'name="stream"\r\n\r\ntrue' in body:
            return Reply(pieces=PIECES, headers={"Content-Type": "text/event-stream"})
        if b"\r\n\r\nsrt\r\n" in body:
            return Reply(body=b"1\n00:00 whole\n", headers={"Content-Type": "text/plain"})
        return Reply(body=json.dumps(JSON[path]).encode())

    return reply


def named_anew() -> Path:
    """A file that has another name each time, and is left to be removed with the folder of the test."""
    with tempfile.NamedTemporaryFile(suffix=".wav", delete=False) as file:
        file.write(SOUND)
    return Path(file.name)


def speech(client: Any) -> Any:
    return client.audio.speech.create(model="tts", voice="alloy", input="hu").content


def speech_in_pieces(client: Any) -> Any:
    with client.audio.speech.with_streaming_response.create(model="tts", voice="alloy", input="hu") as said:
        return b"".join(said.iter_bytes(100))


def transcription(client: Any) -> Any:
    return client.audio.transcriptions.create(model="whisper", file=named_anew()).text


def transcription_as_text(client: Any) -> Any:
    return client.audio.transcriptions.create(model="whisper", file=("a.wav", SOUND), response_format="srt")


def transcription_streamed(client: Any) -> Any:
    events = client.audio.transcriptions.create(model="whisper", file=("a.wav", SOUND), stream=True)
    return [event.type for event in events]


def translation(client: Any) -> Any:
    return client.audio.translations.create(model="whisper", file=("a.wav", io.BytesIO(SOUND))).text


def moderation(client: Any) -> Any:
    return client.moderations.create(model="omni", input="it").results[0].flagged


def moderation_by_default(client: Any) -> Any:
    return client.moderations.create(input="it").results[0].flagged


def image(client: Any) -> Any:
    return client.images.generate(prompt="an owl").data[0].b64_json


def edit(client: Any) -> Any:
    return client.images.edit(model="gpt-image", image=[named_anew(), named_anew()], prompt="an owl").data[0].b64_json


def variation(client: Any) -> Any:
    return client.images.create_variation(image=("a.png", SOUND)).data[0].b64_json


def embedding(client: Any) -> Any:
    return client.embeddings.create(model="e", input="it", encoding_format="float").data[0].embedding


OPENAI = {
    speech: "tts", speech_in_pieces: "tts", transcription: "whisper", transcription_as_text: "whisper",
    transcription_streamed: "whisper", translation: "whisper", moderation: "omni", moderation_by_default: "moderation",
    image: "image", edit: "gpt-image", variation: "image", embedding: "e",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:deprecated")  # what makes a variation of an image
@pytest.mark.parametrize("way", OPENAI)
def test_by_openai_each_is_paid_once(
    way: Callable[[Any], Any], account: Any, attempt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with WireServer() as wire:
        wire.reply = answered(wire)

        def task() -> list[Any]:
            with openai.OpenAI(base_url=wire.url, api_key="k", max_retries=0) as client:
                return [way(client), way(client)]

        alone = task()
        assert attempt(task) == alone
        assert (account.paid, account.in_doubt) == ({AccountKey("model", "", OPENAI[way]): 2}, 0)
        assert attempt(task) == alone
        assert len(wire.log) == 4


FORM = {"model": "whisper", "temperature": "0"}


def with_httpx(library: Any, url: str) -> Any:
    return library.post(url, data=FORM, files={"file": ("a.wav", SOUND, "audio/wav")}).json()


def with_httpx_async(library: Any, url: str) -> Any:
    async def go() -> Any:
        async with library.AsyncClient() as client:
            return (await client.post(url, data=FORM, files={"file": ("a.wav", io.BytesIO(SOUND))})).json()

    return asyncio.run(go())


def with_requests(url: str) -> Any:
    return requests.post(url, data=FORM, files={"file": ("a.wav", SOUND)}, timeout=20).json()


def with_urllib3(url: str) -> Any:
    return urllib3.request("POST", url, fields={**FORM, "file": ("a.wav", SOUND)}).json()


async def _with_aiohttp(url: str, data: Any) -> Any:
    async with aiohttp.ClientSession() as session, session.post(url, data=data) as said:
        return await said.json()


def with_aiohttp(url: str) -> Any:
    form = aiohttp.FormData(FORM)
    form.add_field("file", io.BytesIO(SOUND), filename="a.wav", content_type="audio/wav")
    return asyncio.run(_with_aiohttp(url, form))


def with_aiohttp_of_fields(url: str) -> Any:
    return asyncio.run(_with_aiohttp(url, {**FORM, "file": io.BytesIO(SOUND)}))


def _with(way: Callable[[Any, str], Any], library: Any) -> Callable[[str], Any]:
    return lambda url: way(library, url)


CLIENTS = {
    "httpx": _with(with_httpx, httpx), "httpx, async": _with(with_httpx_async, httpx),
    "httpx2": _with(with_httpx, httpx2), "httpx2, async": _with(with_httpx_async, httpx2),
    "requests": with_requests, "urllib3": with_urllib3,
    "aiohttp": with_aiohttp, "aiohttp, of fields": with_aiohttp_of_fields,
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
def test_a_form_is_the_same_request_whatever_its_boundary_is(client: str, account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        wire.reply = answered(wire)

        def task() -> Any:
            return CLIENTS[client](f"{wire.url}/audio/transcriptions")

        assert task() == attempt(task) == attempt(task) == SAID
        alone, mine = wire.log
        assert (account.paid, account.in_doubt) == ({AccountKey("model", "", "whisper"): 1}, 0)
        assert account.tokens == 7
        assert unbound(mine) == unbound(alone), "the same bytes as without us"


def unbound(asked: Any) -> Any:
    method, path, headers, body = asked
    boundary = body.partition(b"\r\n")[0].lstrip(b"-")
    said = [(name, value.replace(boundary.decode(), "B")) for name, value in headers]
    return method, path, said, body.replace(boundary, b"B")


def test_another_file_is_another_request(account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        wire.reply = answered(wire)

        def ask(name: str, sound: bytes, **form: str) -> Any:
            files = {"file": (name, sound)}
            return httpx.post(f"{wire.url}/audio/transcriptions", data={**FORM, **form}, files=files).json()

        attempt(
            lambda: [ask("a.wav", SOUND), ask("a.wav", SOUND[1:]), ask("a.mp3", SOUND), ask("a.wav", SOUND, model="w")]
        )
        assert (len(wire.log), account.paid.total()) == (4, 4)
        attempt(lambda: [ask("b.wav", SOUND), ask("b.wav", SOUND[2:])])
        assert len(wire.log) == 5


def test_a_rerank_is_paid_once(account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        wire.reply = answered(wire)
        asked = {"model": "r", "query": "it", "documents": ["a"]}
        task = lambda: requests.post(f"{wire.url}/rerank", json=asked, timeout=20).json()  # noqa: E731 - an expression with a name
        assert attempt(task) == attempt(task) == JSON["/v1/rerank"]
        assert len(wire.log) == 1
