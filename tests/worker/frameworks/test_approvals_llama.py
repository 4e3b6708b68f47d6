"""What workflows of LlamaIndex ask a person, with events of classes of their own, and their package alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

from ...support.soak import in_soak
from .test_approvals import needs, pytestmark

__all__ = ["pytestmark"]

WORKFLOW = """
import asyncio

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
ITS_OWN = """
class Own(Greets):
    async def run(self, town):
        return await super().run(town=town)


flow = Own(timeout=60)
"""
BY_INPUT = """
class Types(Greets):
    @step
    async def third(self, ctx: Context, ev: AgeGiven) -> StopEvent:
        return StopEvent(result=[await ctx.store.get("name"), ev.age, ev.exact, input("Sure?")])


flow = Types(timeout=60)
"""
INSIDE = """
class Sends(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        handler = Greets(timeout=60).run(town=ev.town)
        given = await handler
        seen = [type(one).__name__ async for one in handler.stream_events()]
        assert seen == ["NameRequired", "AgeRequired", "InputRequiredEvent", "StopEvent"], seen
        return StopEvent(result=given)


flow = Sends(timeout=60)
"""
BY_A_FUNCTION = """
async def flow(town):
    async def read(handler):
        return [type(one).__name__ async for one in handler.stream_events()]

    begun = Other(timeout=60).run()
    reads = asyncio.create_task(read(begun))  # it has its own way to answer what is asked
    assert await begun == "quiet" and await reads == ["InputRequiredEvent", "StopEvent"]
    return await Greets(timeout=60).run(town=town)


class Other(Workflow):
    @step
    async def first(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(InputRequiredEvent(prefix="Nobody is asked this"))
        await asyncio.sleep(0.01)
        return StopEvent(result="quiet")
"""


@needs("workflows")
@pytest.mark.parametrize("more", ["", BY_A_FUNCTION, *in_soak(ITS_OWN, BY_INPUT, INSIDE)])
def test_each_question_is_answered_by_an_event_of_the_class_that_is_waited_for(
    more: str, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a workflow that asks with classes of its own, waited for by steps, and inside of one; and who awaits its end
    (file := tmp_path / "flow.py").write_text(WORKFLOW + more)
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    result, asked = client.submit(f"{file}:flow", {"town": "Rome"}).wait(150), []
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
    assert next(iter(result.outputs.values())).replace(" ", "") == '["007",36,true,"yes"]', result.error


@needs("workflows")
def test_a_question_with_several_possible_answers_is_refused_at_once(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    (file := tmp_path / "flow.py").write_text(WORKFLOW.replace("NameRequired", "Required"))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(file, {"town": "Rome"}).wait(150)
    assert "Required may be answered by AgeGiven, NameGiven: name" in (result.error or "")


AWAITED = """
import asyncio
import json

from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent


class Part(Event):
    pass


class Counts(Workflow):
    @step
    async def first(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(3):
            ctx.write_event_to_stream(Part())
            await asyncio.sleep(0.05)
        done.append(1)
        return StopEvent(result="end")


class Fails(Workflow):
    @step
    async def first(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no")


done = []


def begun(kind=Counts):
    return kind(timeout=30).run()


async def end(handler):
    try:
        return await handler
    except ValueError as error:
        return str(error)


async def read(handler, wait=0.0):
    await asyncio.sleep(wait)
    return [type(one).__name__ async for one in handler.stream_events()]


async def again(reading):
    try:
        return await reading
    except Exception as error:
        return type(error).__name__


async def flow():
    found = {}
    for kind in (Counts, Fails):
        handler = begun(kind)
        found[f"{kind.__name__} is awaited twice"] = [await end(handler), await end(handler)]
    handler = begun()
    found["by two at once"] = await asyncio.gather(end(handler), end(handler))
    handler = begun()
    found["and read by one who comes later"] = await asyncio.gather(end(handler), read(handler, 0.07))
    found["and by another"] = await again(read(handler))
    done.clear()
    try:
        await asyncio.wait_for(end(begun()), 0.02)
    except asyncio.TimeoutError:
        await asyncio.sleep(0.5)
        found["by one who goes"] = done
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(flow())))
"""


@needs("workflows")
def test_the_end_of_a_workflow_is_awaited_and_its_events_are_read_as_without_the_runner(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    (file := tmp_path / "flow.py").write_text(AWAITED)
    alone = subprocess.run([sys.executable, file], capture_output=True, check=True, timeout=60).stdout
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(f"{file}:flow").wait(150)
    assert json.loads(next(iter(result.outputs.values()), "null")) == json.loads(alone), result.error
    assert json.loads(alone)["and read by one who comes later"] == ["end", ["Part", "Part", "Part", "StopEvent"]]
