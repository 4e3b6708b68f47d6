"""Streams on the fleet: the chunks that code reads are the same after a kill; without a reader they are as nothing."""

import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

pytestmark = pytest.mark.timeout(120)

TOLD = "Told of owls and of eels."

INNER = """
    from runner import Agent, tool

    @tool
    def look(at: str) -> str:
        "Looks."
        trace("look")
        return "seen"

    def inner():
        agent = Agent(role="digger", llm="openai/m", tools=[look])
        tasks = [Task(name=name, description=f'please {name}', agent=agent) for name in ("dig", "tell")]
        return Crew(agents=[agent], tasks=tasks, stream=True)
"""

READERS = {
    "a task": """
    def read(ctx):
        stream = inner().kickoff()
        for chunk in stream:
            trace(f"{ctx.attempt} {chunk.task_name} {chunk.chunk_type.value} {chunk.content}")
        return stream.get_full_text()

    crew = Crew(tasks=[Task(name="read", run=read)])
""",
    "a coroutine": """
    async def read(ctx):
        stream = await inner().kickoff_async()
        async for chunk in stream:
            trace(f"{ctx.attempt} {chunk.task_name} {chunk.chunk_type.value} {chunk.content}")
        return stream.get_full_text()

    crew = Crew(tasks=[Task(name="read", run=read)])
""",
}


class Script:
    """A use of a tool and an answer for each of two tasks. What asks for the last one first is told its beginning."""

    stuck = 1

    def __call__(self, request: Any) -> Any:
        if request.turn == 0:
            return Call("look", {"at": "owls"})
        if "please tell" in str(request.body["messages"]) and self.stuck:
            self.stuck -= 1
            return Answer(TOLD, pace=2)
        return Answer(TOLD if "please tell" in str(request.body["messages"]) else "Dug up owls.")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def models(script: Script) -> Iterator[ModelServer]:
    with ModelServer(script) as one:
        yield one


@pytest.mark.parametrize("reader", READERS)
def test_after_a_kill_in_the_midst_of_a_stream_the_same_chunks_come_of_what_is_recorded(
    reader: str, fleet: Any, client: Client, crew_of: Any, trace: Any, models: ModelServer, eventually: Any
) -> None:
    # Given a worker that is killed between two pieces of an answer
    worker = fleet.start("--concurrency", "1", **models.environment)
    handle = client.submit(crew_of(INNER + READERS[reader]))
    eventually(lambda: any(line.startswith("1 tell text") for line in trace.lines()), within=60)
    worker.kill_group()
    # When another one continues
    fleet.start("--concurrency", "1", **models.environment)
    result = handle.wait(60)
    # Then that answer alone is asked for again, and what was recorded is read as it came
    assert (result.status, result.result) == ("completed", f"Dug up owls.{TOLD}"), result
    assert (result.recoveries, result.ledger["in_doubt"], len(models.log)) == (1, 1, 5)
    assert trace.lines().count("look") == 2
    first, second = ([line[2:] for line in trace.lines() if line.startswith(f"{n} ")] for n in (1, 2))
    assert second[: len(first)] == first
    assert len(second) > len(first)
    assert {line.split()[1] for line in first} == {"text", "tool_call"}


def test_a_crew_that_streams_is_done_as_others_are_and_so_is_a_file_that_reads_its_chunks(
    fleet: Any, client: Client, crew_of: Any, models: ModelServer, script: Script
) -> None:
    fleet.start("--concurrency", "1", **models.environment)
    script.stuck = 0
    result = client.submit(crew_of(INNER + "\n    crew = inner()\n")).wait(60)
    assert (result.status, result.result) == ("completed", TOLD)
    assert {request.stream for request in models.log} == {True}
    asked = [request.body for request in models.log]
    models.reset()
    main = """
    if __name__ == "__main__":
        stream = inner().kickoff()
        for chunk in stream:
            print(chunk, end="")
        print()
        print("Result:", stream.result.raw)
    """
    result = client.submit(f"{crew_of(INNER + main, 'reads')}:__main__()").wait(60)
    assert result.status == "completed", result
    used = '{"at": "owls"}'
    assert result.result.strip() == f"{used}Dug up owls.{used}{TOLD}\nResult: {TOLD}", result
    assert [request.body for request in models.log] == asked


def test_a_flow_that_streams(fleet: Any, client: Client, flow_of: Any, models: ModelServer, script: Script) -> None:
    fleet.start("--concurrency", "1", **models.environment)
    script.stuck = 0
    flow = """
    class F(Flow):
        stream = True

        @start()
        def read(self):
            return "".join(str(chunk) for chunk in inner().kickoff())
    """
    result = client.submit(flow_of(textwrap.dedent(INNER) + textwrap.dedent(flow))).wait(60)
    assert result.status == "completed", result
    assert result.result.endswith(TOLD)
