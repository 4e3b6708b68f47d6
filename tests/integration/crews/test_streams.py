"""Kickoffs that are streamed: their chunks and frames, their results, and what is left when nobody reads them."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import LLM, Agent, Crew, Flow, Task, start, tool
from runner.events import LLMStreamChunkEvent, event_bus
from runner.streaming import AsyncStreamSession, CrewStreamingOutput, StreamChunkType, StreamSession
from runner.testing import Answer, Call, ModelServer


def answers(request: Any) -> Any:
    """A use of a tool, if one is offered, then text that names the topic."""
    said = str(request.body["messages"])
    topic = next(one for one in ("owls", "eels", "ants") if one in said)
    if request.body.get("tools") and request.turn == 0:
        return Call("look", {"at": topic})
    return Answer(f"All about {topic}, at length.")


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(answers) as server:
        yield server


@tool
def look(at: str) -> str:
    "Looks."
    return f"saw {at}"


def crew_of(models: ModelServer, protocol: str = "openai", tools: Any = (), **options: Any) -> Crew:
    url = models.url if protocol == "openai" else models.root
    agent = Agent(role="digger", llm=LLM(f"{protocol}/m", base_url=url, api_key="k"), tools=list(tools))
    tasks = [Task(name=name, description=name + " {topic}", agent=agent) for name in ("dig", "tell")]
    return Crew(agents=[agent], tasks=tasks, stream=True, **options)


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_the_chunks_of_a_crew_and_its_result(models: ModelServer, protocol: str) -> None:
    crew = crew_of(models, protocol, [look])
    stream = crew.kickoff({"topic": "owls"})
    assert isinstance(stream, CrewStreamingOutput)
    assert models.paid == 0  # it begins as it is iterated
    with pytest.raises(RuntimeError, match="not completed"):
        _ = stream.result
    chunks = list(stream)
    assert {request.stream for request in models.log} == {True}
    assert stream.get_full_text() == "All about owls, at length." * 2
    assert stream.chunks == chunks
    assert stream.is_completed
    assert stream.result.raw == "All about owls, at length."
    assert {(one.task_index, one.task_name, one.agent_role) for one in chunks} == {
        (0, "dig", "digger"),
        (1, "tell", "digger"),
    }
    uses = [one.tool_call for one in chunks if one.chunk_type is StreamChunkType.TOOL_CALL]
    assert {use.tool_name for use in uses} == {"look"}
    assert uses[-1].arguments.replace(" ", "") == '{"at":"owls"}'
    assert crew.stream is True
    assert crew.tasks[0].agent.llm.stream is False


def test_an_error_comes_out_of_the_iteration(models: ModelServer) -> None:
    def fail(ctx: Any) -> str:
        raise LookupError("no owls")

    crew = crew_of(models)
    crew = Crew(tasks=[*crew.tasks, Task(name="fail", run=fail)], stream=True)
    stream = crew.kickoff({"topic": "owls"})
    with pytest.raises(LookupError, match="no owls"):
        list(stream)
    assert stream.get_full_text() == "All about owls, at length." * 2
    with pytest.raises(LookupError):
        _ = stream.result


def test_streams_side_by_side_have_their_own_chunks(models: ModelServer) -> None:
    streams = {topic: crew_of(models).kickoff({"topic": topic}) for topic in ("owls", "eels", "ants")}
    threads = [threading.Thread(target=list, args=(stream,)) for stream in streams.values()]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    for topic, stream in streams.items():
        assert stream.get_full_text() == f"All about {topic}, at length." * 2


@pytest.mark.parametrize("name", ["kickoff_async", "akickoff"])
def test_awaited(models: ModelServer, name: str) -> None:
    async def told() -> CrewStreamingOutput:
        stream: CrewStreamingOutput = await getattr(crew_of(models), name)({"topic": "owls"})
        async with stream:
            assert [chunk async for chunk in stream] == stream.chunks
        assert not stream.is_cancelled
        return stream

    stream = asyncio.run(told())
    assert stream.get_full_text() == "All about owls, at length." * 2
    assert stream.result.raw == "All about owls, at length."


def test_each_of_many_inputs(models: ModelServer) -> None:
    inputs = [{"topic": "owls"}, {"topic": "eels"}]
    streams = crew_of(models).kickoff_for_each(inputs)
    for one, topic in zip(streams, ("owls", "eels"), strict=True):
        assert {chunk.task_index for chunk in one} == {0, 1}
        assert one.get_full_text() == f"All about {topic}, at length." * 2

    async def together() -> CrewStreamingOutput:
        stream: CrewStreamingOutput = await crew_of(models).kickoff_for_each_async(inputs)
        assert [chunk async for chunk in stream]
        return stream

    one = asyncio.run(together())
    assert [output.raw for output in one.results] == [f"All about {topic}, at length." for topic in ("owls", "eels")]
    assert len(one.get_full_text()) == 4 * len("All about owls, at length.")


def test_a_stream_that_is_left_ends_nothing_that_was_begun(models: ModelServer) -> None:
    stream = crew_of(models).kickoff({"topic": "owls"})
    for _ in stream:
        break
    stream.close()
    assert (models.paid, stream.is_cancelled) == (2, True)
    assert stream.result.raw == "All about owls, at length."


def test_a_process_ends_no_task_in_flight_whose_stream_was_left(models: ModelServer, tmp_path: Path) -> None:
    file = tmp_path / "left.py"
    file.write_text(
        "from runner import *\n"
        "agent = Agent(role='digger', llm='openai/m')\n"
        "tasks = [Task(description='dig owls', agent=agent) for _ in range(3)]\n"
        "stream = Crew(agents=[agent], tasks=tasks, stream=True,\n"
        "              task_callback=lambda output: open('done', 'a').write(output.raw)).kickoff()\n"
        "next(iter(stream))\n"
    )
    environment = {**models.environment, "PATH": ""}
    subprocess.run([sys.executable, str(file)], env=environment, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "done").read_text().startswith("All about owls, at length.")


def test_ctrl_c_while_a_chunk_is_awaited_has_nothing_more_done() -> None:
    done: list[str] = []
    waits, reader = threading.Event(), threading.get_ident()

    def first(ctx: Any) -> str:
        signal.pthread_kill(reader, signal.SIGINT)  # it waits, or is about to
        waits.wait(60)
        done.append("first")
        return "x"

    def second(ctx: Any) -> str:
        done.append("second")
        return "x"

    stream = Crew(tasks=[Task(name="a", run=first), Task(name="b", run=second)], stream=True).kickoff()
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    waits.set()
    stream.close()
    assert stream.is_cancelled
    assert "second" not in done


def test_handlers_receive_each_chunk_once_and_outside_of_a_stream_as_well(models: ModelServer) -> None:
    told: list[str] = []
    with event_bus.scoped_handlers():
        event_bus.on(LLMStreamChunkEvent)(lambda _, event: told.append(event.chunk))
        crew = crew_of(models)
        list(crew.kickoff({"topic": "owls"}))
        event_bus.flush()
    assert "".join(told) == "All about owls, at length." * 2


# -- flows


class Digs(Flow[dict[str, Any]]):
    stream = True
    models: Any = None

    @start()
    def dig(self) -> str:
        inner = crew_of(self.models).kickoff({"topic": "owls"})
        assert isinstance(inner, CrewStreamingOutput)  # one inside of another
        return "".join(str(chunk) for chunk in inner) and inner.result.raw


def test_the_frames_of_a_flow(models: ModelServer) -> None:
    session = Digs(models=models).kickoff()
    assert isinstance(session, StreamSession)
    with session:
        text = "".join(frame.content for frame in session.llm)
    assert text == "All about owls, at length." * 2
    assert session.result == "All about owls, at length."
    assert [frame.type for frame in session.flow] == [
        "flow_started", "method_execution_started", "method_execution_finished", "flow_finished",
    ]  # fmt: skip
    seqs = [frame.seq for frame in session.frames]
    assert seqs == sorted(seqs)
    session.frames[0].model_dump_json()


def test_a_flow_that_is_awaited_and_one_that_is_not_told_to_stream(models: ModelServer) -> None:
    async def told(flow: Flow[Any]) -> AsyncStreamSession[Any]:
        session = await flow.kickoff_async() if flow.stream else flow.astream()
        assert [frame async for frame in session] == session.frames
        return session

    for flow in (Digs(models=models), Digs(models=models, stream=False)):
        session = asyncio.run(told(flow))
        assert isinstance(session, AsyncStreamSession)
        assert session.result == "All about owls, at length."


def test_a_flow_on_the_loop_is_cancelled_with_its_stream() -> None:
    ended: list[str] = []

    class Waits(Flow[dict[str, Any]]):
        @start()
        async def wait(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("wait")

    async def left() -> None:
        session = Waits().astream()
        async for frame in session:
            if frame.type == "method_execution_started":
                break
        await asyncio.sleep(0)
        await session.aclose()
        assert session.is_cancelled

    asyncio.run(left())
    assert ended == ["wait"]
