"""Crews of three tasks that ask a model twelve times: four calls a task, two tools side by side between them.

`agents` and `agents_streamed` are done by agents; `client` and `client_streamed` are plain functions that use the
vendor's client, `asynchronous` and `asynchronous_streamed` its other one. What tools do is written into `CHAOS_TRACE`.
"""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import openai

from runner import LLM, Agent, Crew, Task, tool

TASKS = ("first", "second", "third")


def leave(line: str) -> None:
    """One line in the trace, whole whoever writes beside."""
    with open(os.environ["CHAOS_TRACE"], "a") as trace:  # noqa: PTH123 - appended in one write
        trace.write(line + "\n")


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    leave(f"tool {thing}")
    return f"{thing} is there"


def agents_crew(stream: bool) -> Crew:
    worker = Agent(role="worker", goal="look at things", llm=LLM("openai/scripted", stream=stream), tools=[look])
    tasks = [
        Task(name=name, description=f"run={{label}} task={name}: look.", expected_output="words", agent=worker)
        for name in TASKS
    ]
    return Crew(name="chaos", agents=[worker], tasks=tasks)


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}}}]  # fmt: skip


def told(message, calls, results):
    """What a conversation gets when tools were used."""
    listed = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    yield {"role": "assistant", "content": message, "tool_calls": listed}
    for call, result in zip(calls, results, strict=True):
        yield {"role": "tool", "tool_call_id": call.id, "content": result}


class Wanted:
    """A tool call, put together of the pieces of a stream or taken from a message."""

    def __init__(self) -> None:
        self.id = self.name = self.arguments = ""

    def add(self, piece) -> "Wanted":
        self.id = piece.id or self.id
        self.name = piece.function.name or self.name
        self.arguments += piece.function.arguments or ""
        return self


def read(answer):
    """Text and tool calls of a whole answer."""
    message = answer.choices[0].message
    return message.content, [Wanted().add(call) for call in message.tool_calls or ()]


class Gathered:
    """Text and tool calls of a stream."""

    def __init__(self) -> None:
        self.text, self.calls = "", {}

    def add(self, chunk) -> None:
        for choice in chunk.choices:
            self.text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                self.calls.setdefault(piece.index, Wanted()).add(piece)

    def whole(self):
        return self.text or None, [self.calls[index] for index in sorted(self.calls)]


def question(ctx, stream):
    said = {"role": "user", "content": f"run={ctx.inputs['label']} task={ctx.task.name}: look."}
    asked = {"model": "scripted", "tools": TOOLS, "messages": [said]}
    return {**asked, "stream": True, "stream_options": {"include_usage": True}} if stream else asked


def client_task(stream):
    def run(ctx):
        asked = question(ctx, stream)
        with openai.OpenAI() as client:
            while True:
                if stream:
                    gathered = Gathered()
                    for chunk in client.chat.completions.create(**asked):
                        gathered.add(chunk)
                    text, calls = gathered.whole()
                else:
                    text, calls = read(client.chat.completions.create(**asked))
                if not calls:
                    return text
                with ThreadPoolExecutor() as pool:
                    results = [
                        pool.submit(copy_context().run, ctx.step, "look", used, call.arguments) for call in calls
                    ]
                asked["messages"] += told(text, calls, [one.result() for one in results])

    return run


def async_task(stream):
    async def run(ctx):
        asked = question(ctx, stream)
        async with openai.AsyncOpenAI() as client:
            while True:
                if stream:
                    gathered = Gathered()
                    async for chunk in await client.chat.completions.create(**asked):
                        gathered.add(chunk)
                    text, calls = gathered.whole()
                else:
                    text, calls = read(await client.chat.completions.create(**asked))
                if not calls:
                    return text
                results = await asyncio.gather(*(ctx.step("look", aused, call.arguments) for call in calls))
                asked["messages"] += told(text, calls, results)

    return run


def used(arguments: str) -> str:
    return look.run(**json.loads(arguments))


async def aused(arguments: str) -> str:
    await asyncio.sleep(0)
    return used(arguments)


def functions_crew(make, stream: bool) -> Crew:
    return Crew(name="chaos", tasks=[Task(name=n, run=make(stream), description="{label}") for n in TASKS])


agents = agents_crew(stream=False)
agents_streamed = agents_crew(stream=True)
client = functions_crew(client_task, stream=False)
client_streamed = functions_crew(client_task, stream=True)
asynchronous = functions_crew(async_task, stream=False)
asynchronous_streamed = functions_crew(async_task, stream=True)
