"""What workflows of LlamaIndex ask a person, with events of classes of their own, and their package alone."""

import os
import signal
from pathlib import Path
from typing import Any

from runner.client import Client

from .test_approvals import needs, pytestmark

__all__ = ["pytestmark"]

WORKFLOW = """
from workflows import Context, Workflow, step
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent


class NameRequired(InputRequiredEvent):
    hint: str


class NameGiven(HumanResponseEvent):
    name: str


class AgeRequired(InputRequiredEvent):
    name: str
    most: int


class AgeGiven(HumanResponseEvent):
    age: int
    exact: bool = False


class Sure(HumanResponseEvent):
    pass


class Greets(Workflow):
    @step
    async def first(self, ev: StartEvent) -> NameRequired:
        return NameRequired(hint=f"Who, of {ev.town}?")

    @step
    async def second(self, ctx: Context, ev: NameGiven) -> AgeRequired:
        await ctx.store.set("name", ev.name)
        return AgeRequired(name=ev.name, most=99)

    @step
    async def third(self, ctx: Context, ev: AgeGiven) -> StopEvent:
        sure = await ctx.wait_for_event(Sure, waiter_event=InputRequiredEvent(prefix="Sure?"))
        return StopEvent(result=[await ctx.store.get("name"), ev.age, ev.exact, sure.response])


flow = Greets(timeout=60)
"""


@needs("workflows")
def test_each_question_is_answered_by_an_event_of_the_class_that_is_waited_for(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a workflow that asks with classes of its own, waited for by steps, and inside of one
    (file := tmp_path / "flow.py").write_text(WORKFLOW)
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    result, asked = client.submit(file, {"town": "Rome"}).wait(150), []
    # When each is answered: as text, with what does not fit its class, as JSON; and the process is killed before each
    for answer in ("007", "old", '{"age": 36, "exact": true}', "yes"):
        assert result.status == "waiting", result.error
        asked += [one.message for one in result.asked]
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
        result = client.answer(result.run_id, answer).wait(150)
    # Then what does not fit is asked for again
    age = '{"most": 99, "name": "007"}'
    refused = "AgeGiven.age: Input should be a valid integer, unable to parse string as an integer (got 'old')"
    assert asked == ["Who, of Rome?", age, f"{age} ({refused})", "Sure?"]
    assert result.outputs["agent"].replace(" ", "") == '["007",36,true,"yes"]', result.error


@needs("workflows")
def test_a_question_with_several_possible_answers_is_refused_at_once(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    (file := tmp_path / "flow.py").write_text(WORKFLOW.replace("NameRequired", "Required"))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(file, {"town": "Rome"}).wait(150)
    assert "Required may be answered by AgeGiven, NameGiven: name" in (result.error or "")
