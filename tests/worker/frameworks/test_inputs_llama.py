"""What a workflow of LlamaIndex takes is asked for before anything is stored, and is what the workflow gets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import BadCrew, BadInput

from .test_approvals import needs, pytestmark
from .test_finding import found

__all__ = ["pytestmark"]

HEAD = """
from pydantic import BaseModel
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent


class Place(BaseModel):
    town: str


class Begin(StartEvent):
    topic: str
    pages: int
    tries: int = 3
    at: Place | None = None


class Writes(Workflow):
    @step
    async def first(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=[ev.topic, ev.get("pages", 2)])

"""
PLAIN = HEAD + "flow = Writes()\n"
TYPED = PLAIN.replace("ev: StartEvent", "ev: Begin").replace('ev.get("pages", 2)', "ev.pages, ev.tries, ev.at")
OWN = HEAD + "class Own(Writes):\n    def run(self, topic: str, pages: int = 4):\n"
OWN += "        return super().run(topic=topic.upper(), pages=pages)\n\nflow = Own()\n"
AWAITS = OWN.replace("    def run", "    async def run")
WAITS = AWAITS.replace("return super()", "return await super()")
FIXED = OWN.replace("topic: str,", "topic: str, /,")
ANY = OWN.replace("topic: str, pages: int = 4", "**given").replace("topic=topic.upper(), pages=pages", "**given")
TOPIC = "the agent needs the input 'topic': give it with --input topic=..."


@needs("workflows")
@pytest.mark.parametrize(
    ("code", "inputs", "gives"),
    [
        (PLAIN, {"topic": "owls"}, ["owls", 2]),
        (PLAIN, {"topic": "owls", "pages": 3}, ["owls", 3]),
        (TYPED, {"topic": "owls", "pages": 3}, ["owls", 3, 3, None]),
        (TYPED, {"topic": "owls", "pages": 3, "at": {"town": "Rome"}}, ["owls", 3, 3, {"town": "Rome"}]),
        (OWN, {"topic": "owls"}, ["OWLS", 4]),
        (AWAITS, {"topic": "owls", "pages": 3}, ["OWLS", 3]),
        (WAITS, {"topic": "owls"}, ["OWLS", 4]),
        (ANY, {"topic": "owls"}, ["owls", 2]),
    ],
)
def test_a_workflow_gets_its_inputs_and_defaults(
    code: str, inputs: dict[str, object], gives: list[object], tmp_path: Path
) -> None:
    from runner.adapters.frameworks.llama_index import FRAMEWORK

    async def run() -> Any:
        return await FRAMEWORK.run(flow, inputs)

    _, flow = found(tmp_path, code)
    assert set(FRAMEWORK.inputs(flow)) <= set(inputs)
    assert asyncio.run(run()) == gives


@needs("workflows")
@pytest.mark.parametrize(
    ("code", "inputs", "said"),
    [
        (PLAIN, {}, TOPIC),
        (TYPED, {}, "the agent needs the inputs 'pages' (a whole number) and 'topic': give each with"),
        (TYPED, {"topic": "owls", "pages": "many"}, "the input 'pages' is a whole number, not 'many'"),
        (OWN, {}, TOPIC),
        (WAITS, {"pages": 3}, TOPIC),
        (OWN, {"topic": "owls", "pages": "many"}, "the input 'pages' is a whole number, not 'many'"),
        (OWN, {"topic": "owls", "page": 3}, "the agent has no input 'page' (did you mean 'pages'?)"),
        (FIXED, {"topic": "owls"}, "Own.run takes topic by position only, which no input can be"),
    ],
)
def test_what_a_workflow_cannot_take_is_said_before_anything_is_stored(
    code: str, inputs: dict[str, object], said: str, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(code)
    with pytest.raises((BadInput, BadCrew)) as error:
        client.submit(tmp_path / "flow.py", inputs)
    assert str(error.value).startswith(said)
    assert client.runs() == []
