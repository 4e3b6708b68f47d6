"""A client whose store goes away after it was opened: what may be repeated is, and the rest is said in one line."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner.client import Client, handle
from runner.core.errors import Exit, StoreUnreachable
from runner.providers.redis import scripts, waiting_client
from runner.providers.redis.outages import outage
from runner.providers.redis.runs import Runs
from runner.providers.redis.waiting_client import StoreLost, wait_while_unavailable
from runner.testing import Command, Cut, FaultProxy, RedisServer, eventually

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""
CALLS: dict[str, Callable[[Client, str, Any], object]] = {
    "submit": lambda client, _, crew: client.submit(crew),
    "runs": lambda client, _, __: client.runs(),
    "status": lambda client, run, _: client.run(run).status,
    "result": lambda client, run, _: client.run(run).result(),
    "events": lambda client, run, _: list(client.run(run).events()),
    "checkpoints": lambda client, run, _: client.checkpoints(run),
    "cancel": lambda client, run, _: client.run(run).cancel(),
    "fork": lambda client, run, _: client.fork(run),
    "resume": lambda client, run, _: client.resume(run),
    "answer": lambda client, run, _: client.answer(run, "yes"),
    "diff": lambda client, run, _: client.diff(run, "main", "main"),
}


@pytest.fixture
def opened(own_server: RedisServer, write_crew: Any) -> Iterator[tuple[Client, str, Any]]:
    """A client, a run of its, and the crew."""
    with Client(own_server.url) as client:
        crew = write_crew(CREW)
        yield client, client.submit(crew).id, crew


def test_a_run_is_submitted_to_a_server_that_restarts_meanwhile(
    opened: tuple[Client, str, Any], own_server: RedisServer
) -> None:
    client, before, crew = opened
    own_server.kill()
    found: list[Any] = []
    submitting = threading.Thread(target=lambda: found.append(client.submit(crew)))
    submitting.start()
    eventually(lambda: outage.waiting, why="it waits for the server")
    own_server.start()
    submitting.join(60)
    assert [run.id for run in client.runs() if run.id != before] == [one.id for one in found] != []


@pytest.mark.parametrize("call", CALLS)
def test_each_call_says_in_one_line_that_the_store_is_lost(
    call: str, opened: tuple[Client, str, Any], own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.1)
    own_server.kill()
    with pytest.raises(StoreUnreachable, match=r"^the connection to Redis was lost: .+; `runner doctor` shows") as lost:
        CALLS[call](*opened)
    assert "\n" not in str(lost.value)
    assert lost.value.exit_code is Exit.UNREACHABLE


@pytest.mark.parametrize("after", [False, True])
def test_a_submission_whose_answer_is_lost_is_one_run(own_server: RedisServer, write_crew: Any, after: bool) -> None:
    # Given a server that is cut off once, before or after it has created the run
    cuts: list[str] = []

    def decide(command: Command) -> Cut | None:
        if command.name == "create_run" and not cuts:
            cuts.append(command.name)
            return Cut(applied=after)
        return None

    with FaultProxy(own_server, decide) as proxy, Client(proxy.url) as client:
        # When a run is submitted, then there is one, and it was created here
        handle = client.submit(write_crew(CREW))
        assert (handle.created, [run.id for run in client.runs()]) == (True, [handle.id])


def test_what_was_answered_is_not_asked_again_where_its_worker_is_looked_for(
    opened: tuple[Client, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, run, _ = opened
    asked, queues = [], list[str]()

    def field(*_: object) -> str:
        asked.append("queue")
        if len(asked) < 3:
            raise StoreLost("it is away")
        return "its queue"

    with monkeypatch.context() as patch:
        patch.setattr(client.store, "membership", object())
        patch.setattr(Runs, "field", field)
        patch.setattr(client, "ensure_worker", queues.append)
        client._looked_for_worker = -math.inf
        assert client.patient(lambda: asked.append("call"), client.run(run)) is None
    assert (asked, queues) == (["call", "queue", "queue"], ["its queue"])


def test_who_stops_waiting_is_not_told_that_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    calls = iter([StoreLost("it is away"), StoreLost("it is away"), KeyboardInterrupt()])

    def call() -> None:
        raise next(calls)

    with pytest.raises(KeyboardInterrupt):
        wait_while_unavailable(call, lambda: True)
    assert caplog.messages == ["waiting for the store: it is away"]


def test_a_fork_that_may_have_been_made_is_not_made_again(own_server: RedisServer, write_crew: Any) -> None:
    asked: list[str] = []

    def decide(command: Command) -> Cut | None:
        asked.extend([command.name] if command.name == "fork" else [])
        return Cut(applied=True) if command.name == "fork" else None

    with FaultProxy(own_server, decide) as proxy, Client(proxy.url) as client:
        scripts.preload_scripts(client.store.client, "fork")  # else it is asked for by what is cut off
        run = client.submit(write_crew(CREW))
        with pytest.raises(StoreUnreachable, match="the connection to Redis was lost"):
            client.fork(run.id)
        assert asked == ["fork"]
        assert len(run.branches) == 2


@pytest.mark.parametrize("listens", [False, True])
def test_who_waits_only_so_long_does_not_wait_for_the_result_of_a_server_that_is_away(
    opened: tuple[Client, str, Any], own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    # Given a server that is lost between the end of a run and the reading of its result
    client, run, _ = opened
    client.run(run).cancel()

    def lost(*_: object, **__: object) -> None:
        own_server.kill()
        raise StoreLost("it is away")

    monkeypatch.setattr(handle, "result_of", lost)
    # When somebody waits for it with a timeout, then that holds
    with pytest.raises(TimeoutError, match=f"run {run} is over; the store was lost before its result was read"):
        client.run(run).wait(1, on_event=bool if listens else None)
