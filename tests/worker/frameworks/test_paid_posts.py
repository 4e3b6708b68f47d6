"""Speech, transcriptions, images and moderations by a vendor's own client, in workers killed at each of them."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

from ...integration.llm.test_paid_posts import answered
from ...integration.llm.wire_server import Reply, WireServer

CREW = """
import asyncio, base64, tempfile
import openai
from runner import Crew, Task

ABOUT = dict(base_url={url!r}, api_key="sk-secret", max_retries=0)


def all_of_them(ctx):
    with openai.OpenAI(**ABOUT) as client, tempfile.TemporaryDirectory() as folder:
        sound = client.audio.speech.create(model="tts", voice="alloy", input="hu").content
        with tempfile.NamedTemporaryFile(suffix=".wav", dir=folder, delete=False) as file:
            file.write(sound)
        with open(file.name, "rb") as spoken:
            text = client.audio.transcriptions.create(model="whisper", file=spoken).text
        image = client.images.edit(model="gpt-image", image=("a.png", sound), prompt=text).data[0].b64_json
        return f"{{len(sound)}} {{text}} {{base64.b64decode(image).decode()}} {{asyncio.run(flagged(text))}}"


async def flagged(text):
    async with openai.AsyncOpenAI(**ABOUT) as client:
        return (await client.moderations.create(input=text)).results[0].flagged


crew = Crew(tasks=[Task(name="all", run=all_of_them)])
"""
SAID = {"all": "16384 whole pixels False"}
CALLS = 4


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with WireServer() as one:
        one.reply = answered(one)
        yield one


@pytest.fixture
def crew(write_crew: Callable[..., Path], wire: WireServer) -> Path:
    return write_crew(CREW.format(url=wire.url))


def test_a_kill_in_flight_at_each_costs_that_call(crew: Path, wire: WireServer, fleet: Any, client: Client) -> None:
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    answer = wire.reply

    def kill(number: int) -> Reply:
        first = Counter(path for _, path, _, _ in wire.log)[wire.log[-1][1]] == 1
        for child in worker.children() if first else ():
            os.kill(child, signal.SIGKILL)
        return answer(number)

    wire.reply = kill
    result = client.submit(crew).wait(100)
    assert result.outputs == SAID, result.error
    assert set(Counter(path for _, path, _, _ in wire.log).values()) == {2}
    assert (result.ledger["paid"], result.ledger["in_doubt"], len(wire.log)) == (CALLS, CALLS, 2 * CALLS)


@pytest.mark.parametrize(
    ("point", "again"), [("step recorded, task not ended", 0), ("model answered, not recorded", 1),
                         ("task done, not committed", 0)],
)  # fmt: skip
def test_a_kill_after_the_answer_costs_what_was_not_recorded(
    point: str, again: int, crew: Path, wire: WireServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_CRASH_AT=f"{point}:{tmp_path / 'flag'}")
    result = client.submit(crew).wait(100)
    assert (tmp_path / "flag").exists()
    assert result.outputs == SAID, result.error
    assert (result.ledger["paid"], result.ledger["in_doubt"], len(wire.log)) == (CALLS, again, CALLS + again)
