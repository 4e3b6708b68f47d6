"""Calls of models that a crew's own functions make with a vendor's client: kills, drains, forks, and the count of both
sides."""

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli import spending
from runner.client import Client, RunResult
from runner.testing import Answer, ModelServer

pytestmark = pytest.mark.timeout(120)

CREW = """
    import asyncio, contextlib, threading

    def model(**options):
        import openai
        return openai.OpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0, timeout=60)

    def said(text):
        return {{"model": "gpt-4o", "messages": [{{"role": "user", "content": text}}]}}

    def ask(text):
        with model() as client:
            return client.chat.completions.create(**said(text)).choices[0].message.content

    def stream(text):
        with model() as client:
            pieces = client.chat.completions.create(**said(text), stream=True, stream_options={{"include_usage": True}})
            return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)

    def both(*texts):
        import openai
        async def one(client, text):
            return (await client.chat.completions.create(**said(text))).choices[0].message.content
        async def all_of_them():
            async with openai.AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0, timeout=60) as client:
                return await asyncio.gather(*(one(client, text) for text in texts))
        return asyncio.run(all_of_them())

    def in_a_thread(text):
        found = []
        thread = threading.Thread(target=lambda: found.append(ask(text)))
        thread.start()
        thread.join()
        return found[0]
"""

TASKS = """
    def a(ctx):
        return " ".join([ask("1"), stream("2"), ctx.step("inside", ask, "3"), in_a_thread("4")])

    def b(ctx):
        return " ".join([*both("5", ctx.inputs.get("word", "6")), ask(ctx.outputs["a"].raw)])

    crew = Crew(tasks=[Task(name="a", run=a), Task(name="b", run=b)])
"""
CALLS = 7
OUTPUTS = {"a": "<1> <2> <3> <4>", "b": "<5> <6> <<1> <2> <3> <4>>"}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Answers ``<what was asked>``, and counts."""
    with ModelServer(lambda request: f"<{request.text}>") as one:
        yield one


@pytest.fixture
def crew(crew_of: Callable[[str], Path], models: ModelServer) -> Path:
    return crew_of(CREW.format(url=models.url) + TASKS)


def balanced(result: RunResult, models: ModelServer) -> dict[str, Any]:
    """The account agrees with the server's, and with itself. Returns it."""
    found = result.ledger
    assert result.status == "completed", result
    assert found["paid"] + found["in_doubt"] == models.paid, (found, models.log)
    for name, column in (("paid", "calls"), ("replayed", "replayed"), ("in_doubt", "in_doubt")):
        assert found[name] == sum(line[column] for line in found["by"])
    for name in ("prompt_tokens", "completion_tokens", "replayed_tokens"):
        assert found[name] == sum(line[name] for line in found["by"])
    assert bool(found["replayed_tokens"]) == bool(found["replayed"])
    return found


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_every_call_is_in_the_ledger(
    pool: str, models: ModelServer, crew: Path, fleet: Any, client: Client, well_told: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("RUNNER_PRICES", '{"gpt-*": [1000, 2000]}')
    fleet.start("--concurrency", "1", "--pool", pool)
    handle = client.submit(crew)
    result = handle.wait(60)
    assert result.outputs == OUTPUTS
    found = balanced(result, models)
    assert (found["paid"], found["in_doubt"], found["tools"]["paid"]) == (CALLS, 0, 0)
    assert [(line["task"], line["agent"], line["model"], line["calls"]) for line in found["by"]] == [
        ("a", "", "gpt-4o", 4), ("b", "", "gpt-4o", 3),
    ]  # fmt: skip
    assert (found["prompt_tokens"], found["completion_tokens"]) == models.tokens
    assert found["cost"] == pytest.approx((models.tokens[0] * 1000 + models.tokens[1] * 2000) / 1_000_000)
    told = [event.fields for event in well_told(handle) if event.type == "llm_call_completed"]
    assert len(told) == CALLS
    assert sum(int(fields["prompt_tokens"]) for fields in told) == models.tokens[0]
    assert not any("<" in value for fields in told for value in fields.values()), "no payload in events"


BROKEN_OFF = """
    from pathlib import Path

    def a(ctx):
        said = [ask("1"), ask("2")]
        if not Path({go!r}).exists():
            raise RuntimeError("it breaks off")
        return " ".join([*said, ask("3")])

    crew = Crew(tasks=[Task(name="a", run=a)])
"""


def test_a_fork_from_a_call_replays_what_was_recorded_by_then_and_pays_from_there(
    crew_of: Any, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    fleet.start("--concurrency", "1")
    crew = crew_of(CREW.format(url=models.url) + BROKEN_OFF.format(go=str(go)))
    handle = client.submit(crew, checkpoint_on=["llm_call_completed"])
    assert (handle.wait(60).status, models.requests) == ("failed", 2)
    go.touch()
    first = client.checkpoints(handle.id)[0]
    assert client.fork(handle.id, checkpoint=first.id, branch="b").wait(60).outputs == {"a": "<1> <2> <3>"}
    assert models.requests == 4, "the first of two was replayed"
    assert [one.trigger for one in client.checkpoints(handle.id, "b")] == ["llm_call_completed"] * 2
    done = client.checkpoints(handle.id, "b")[0]
    assert client.fork(handle.id, checkpoint=done.id, branch="c").wait(60).outputs == {"a": "<1> <2> <3>"}
    assert models.requests == 5, "the first two of three were replayed, though the task is done"


def test_cached_tokens_cost_what_they_cost(crew_of: Any, models: ModelServer, fleet: Any, client: Client) -> None:
    usage = {"prompt_tokens": 10_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 8_000}}
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}], "usage": usage}
    models.use(lambda request: Answer(body=json.dumps(said)))
    task = """
    def a(ctx):
        return ask("1") + ask("2")
    crew = Crew(tasks=[Task(name="a", run=a)])
    """
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(CREW.format(url=models.url) + task))
    ledger = handle.wait(60).ledger
    # At the list's $2.50, $1.25 and $10 a million
    due = 2 * (2_000 * 2.5 + 8_000 * 1.25 + 100 * 10) / 1_000_000
    assert (ledger["cost"], ledger["currency"]) == (pytest.approx(due), "USD")
    assert [ledger[name] for name in ("prompt_tokens", "cached_tokens")] == [20_000, 16_000]
    assert spending.format_ledger(ledger) == "; 20,200 tokens (16,000 of them cached); cost $0.0320"


def test_the_cost_of_some_calls_is_not_told_as_that_of_all(
    crew_of: Any, models: ModelServer, fleet: Any, client: Client
) -> None:
    usage = {"prompt_tokens": 10_000, "completion_tokens": 0}
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}], "usage": usage}
    models.use(lambda request: Answer(body=json.dumps(said)))
    task = """
    def other(text):
        with model() as client:
            asked = said(text) | {{"model": "home-made"}}
            return client.chat.completions.create(**asked).choices[0].message.content
    first, then = lambda ctx: ask("1") + other("2"), lambda ctx: other("3")
    crew = Crew(tasks=[Task(name="a", run=first), Task(name="b", run=then)])
    """
    fleet.start("--concurrency", "1")
    file = crew_of((CREW + task).format(url=models.url))
    submitted = fleet.runner("submit", file, "--json")
    result = json.loads(submitted.stdout)
    due = {"cost": None, "cost_known": 0.025, "unpriced": {"home-made": 2}}
    waited = json.loads(fleet.runner("wait", result["run_id"], "--json").stdout)
    shown = json.loads(fleet.runner("show", result["run_id"], "--json").stdout)
    for told in (result, waited, shown):
        assert {name: told["ledger"][name] for name in due} == due
    assert [{name: row[name] for name in due} for row in shown["tasks"]] == [
        due | {"unpriced": {"home-made": 1}}, due | {"cost_known": 0, "unpriced": {"home-made": 1}},
    ]  # fmt: skip
    words = "cost at least $0.0250 (not known: 2 calls of home-made)"
    assert spending.format_ledger(client.run(result["run_id"]).result().ledger) == f"; 30,000 tokens; {words}"
    read = fleet.runner("show", result["run_id"]).stdout
    assert words in read
    assert "≥ $0.0250" in read
    assert words in fleet.runner("wait", result["run_id"]).stderr


def test_all_calls_in_flight_at_a_crash_are_in_doubt(
    models: ModelServer, crew_of: Callable[[str], Path], fleet: Any, client: Client
) -> None:
    task = """
    def a(ctx):
        return " ".join(both(*"123456"))
    crew = Crew(tasks=[Task(name="a", run=a)])
    """
    worker = fleet.start("--concurrency", "1")
    all_there, killed = threading.Barrier(6), threading.Event()

    def kill_when_all_are_there(request: Any) -> str:
        if not killed.is_set() and all_there.wait(60) == 0:
            for child in worker.children():
                os.kill(child, signal.SIGKILL)
            killed.set()  # on from here they are answered
        assert killed.wait(60)
        return f"<{request.text}>"

    models.use(kill_when_all_are_there)
    result = client.submit(crew_of(CREW.format(url=models.url) + task)).wait(60)
    assert result.outputs == {"a": "<1> <2> <3> <4> <5> <6>"}
    found = balanced(result, models)
    assert (found["paid"], found["in_doubt"], result.recoveries) == (6, 6, 1)


@pytest.mark.parametrize("pool", ["prefork", "shared"])
@pytest.mark.parametrize(
    ("point", "may_be_high"),
    [
        ("model call noted, not sent", ["shared"]),  # nobody else can read which of its calls have left
        (
            "model call sent, not answered",
            ["prefork", "shared"],
        ),  # of some the server may not have read enough to count
        ("model answered, not recorded", []),
        ("steps gathered, not written", []),
        ("steps written, not told", []),
    ],
)
def test_a_kill_among_calls_that_are_written_together(
    point: str,
    may_be_high: list[str],
    pool: str,
    models: ModelServer,
    crew_of: Any,
    fleet: Any,
    client: Client,
    tmp_path: Path,
) -> None:
    """Each is recorded, or in doubt, once: as many are paid and in doubt as the server answered."""
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_CRASH_AT=f"{point}:{flag}")
    all_there = threading.Barrier(6)

    def answer(request: Any) -> str:
        if not flag.exists():  # the answers come at about the same time
            with contextlib.suppress(threading.BrokenBarrierError):
                all_there.wait(5)
        return f"<{request.text}>"

    models.use(answer)
    task = 'crew = Crew(tasks=[Task(name="a", run=lambda ctx: " ".join(both(*"123456")))])'
    result = client.submit(crew_of(CREW.format(url=models.url) + f"\n    {task}\n")).wait(60)
    assert flag.exists()
    assert result.outputs == {"a": "<1> <2> <3> <4> <5> <6>"}
    if pool in may_be_high:
        assert result.ledger["paid"] == 6
        assert models.paid - 6 <= result.ledger["in_doubt"] <= 6
        return
    found = balanced(result, models)
    assert found["paid"] == 6
    assert (found["replayed"] > 0) == ("steps" in point and found["in_doubt"] < 6)


def test_a_kill_at_every_call_costs_that_call(
    models: ModelServer, crew: Path, fleet: Any, client: Client, well_told: Any
) -> None:
    # Given a worker whose pool child is killed whenever a call comes for the first time
    worker = fleet.start("--concurrency", "1")
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def kill(request: Any) -> str:
        with lock:
            seen[request.text] += 1
            first = seen[request.text] == 1
        if first:
            for child in worker.children():
                os.kill(child, signal.SIGKILL)
        return f"<{request.text}>"

    models.use(kill)
    # When a run makes its calls
    handle = client.submit(crew)
    result = handle.wait(90)
    # Then nothing was paid again but what was in flight, and the account says so
    assert result.outputs == OUTPUTS
    found = result.ledger
    well_told(handle)
    assert found["paid"] == CALLS
    kills = len(seen)
    assert kills == CALLS
    # Of two that go out at one moment, the other one is in doubt, too; and it may have begun, and not have come.
    assert kills <= found["in_doubt"] <= kills + 2
    assert 0 <= found["paid"] + found["in_doubt"] - models.paid <= 1


@pytest.mark.parametrize(
    ("pool", "point", "in_doubt"),
    [
        ("prefork", "model call noted, not sent", 0),
        ("prefork", "model call sent, not answered", 1),
        ("threads", "model answered, not recorded", 1),
        ("prefork", "model answer sent to the store, not acknowledged", 0),  # or the call beside it has left: one
        ("threads", "step recorded, task not ended", 0),
    ],
)
def test_a_worker_dies_in_a_call(
    pool: str, point: str, in_doubt: int, models: ModelServer, crew: Path, fleet: Any, client: Client, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_CRASH_AT=f"{point}:{flag}")
    result = client.submit(crew).wait(60)
    assert flag.exists()
    assert result.outputs == OUTPUTS
    found = balanced(result, models)
    assert found["paid"] == CALLS
    assert found["in_doubt"] - in_doubt in ((0, 1) if "acknowledged" in point else (0,))


ASKS = {"whole": 'ask("slow")', "streamed": 'stream("slow")', "async": 'both("slow", "slower")[0]'}


@pytest.mark.parametrize(("pool", "how"), [("prefork", "whole"), ("prefork", "streamed"), ("shared", "async")])
def test_sigterm_in_a_call_waits_for_its_record(
    pool: str, how: str, models: ModelServer, crew_of: Any, fleet: Any, client: Client, eventually: Any
) -> None:
    ended = threading.Event()

    def slowly(request: Any) -> Any:
        if request.text == "slow" and not ended.wait(60):
            return Answer("nobody drained", status=500)
        return f"<{request.text}>"

    models.use(slowly)
    tasks = f'crew = Crew(tasks=[Task(name="a", run=lambda ctx: {ASKS[how]} + ask("after"))])'
    worker = fleet.start("--concurrency", "1", "--pool", pool, "--drain-timeout", "40")
    handle = client.submit(crew_of(CREW.format(url=models.url) + f"\n    {tasks}\n"))
    models.wait_for(2 if how == "async" else 1)
    worker.terminate()
    ended.set()
    eventually(lambda: worker.process.poll() is not None, within=60, why="the worker ends")
    fleet.start("--concurrency", "1", "--pool", pool)
    found = balanced(handle.wait(60), models)
    assert (found["in_doubt"], found["paid"]) == (0, models.requests)
    assert found["paid"] == (3 if how == "async" else 2)
    assert any(event.type == "task_released" for event in handle.events()) == bool(found["replayed"])


def test_sigterm_in_a_call_over_the_drain_timeout_leaves_it_in_doubt(
    models: ModelServer, crew_of: Any, fleet: Any, client: Client, eventually: Any
) -> None:
    drained = threading.Event()

    def slowly(request: Any) -> Any:
        drained.wait(60)
        return f"<{request.text}>"

    models.use(slowly)
    worker = fleet.start("--concurrency", "1", "--drain-timeout", "0.3")
    handle = client.submit(
        crew_of(
            CREW.format(url=models.url) + '\n    crew = Crew(tasks=[Task(name="a", run=lambda ctx: ask("slow"))])\n'
        )
    )
    models.wait_for(1)
    worker.terminate()
    eventually(lambda: worker.process.poll() is not None, within=60, why="the worker ends")
    drained.set()
    fleet.start("--concurrency", "1")
    result = handle.wait(60)
    assert result.outputs == {"a": "<slow>"}
    found = balanced(result, models)
    assert (found["paid"], found["in_doubt"]) == (1, 1)


def test_a_call_that_differs_from_the_recorded_one_is_said(
    models: ModelServer, crew_of: Any, fleet: Any, client: Client, well_told: Any
) -> None:
    task = """
    def a(ctx):
        said = ask("the same") + ask(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return said + ask(f"in attempt {ctx.attempt}")

    crew = Crew(tasks=[Task(name="a", run=a, max_retries=1, retry_delay=0)])
    """
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(CREW.format(url=models.url) + task))
    found = balanced(handle.wait(60), models)
    assert (found["paid"], found["replayed"]) == (4, 1)
    assert [event.fields["call"] for event in well_told(handle) if event.type == "call_diverged"] == ["2"]


def test_a_fork_pays_for_what_it_does_and_the_comparison_says_so(
    models: ModelServer, crew: Path, fleet: Any, client: Client
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(crew)
    handle.wait(60)
    fork = handle.fork(branch="other", inputs={"word": "seven"})
    result = fork.wait(60)
    assert result.outputs["b"] == "<5> <seven> <<1> <2> <3> <4>>"
    found = balanced(result, models)
    assert [(line["branch"], line["task"], line["calls"], line["replayed"]) for line in found["by"]] == [
        ("main", "a", 4, 0), ("main", "b", 3, 0), ("other", "b", 3, 0),
    ]  # fmt: skip
    ledger = client.diff(handle.id, "main", "other").to_dict()["ledger"]
    assert (ledger["a"]["calls"], ledger["b"]["calls"]) == (7, 3)
    shown = fleet.runner("show", handle.id)
    assert "gpt-4o" in shown.stdout
    assert "tokens" in shown.stdout
    compared = fleet.runner("diff", handle.id, "main", "other").stdout
    assert " models: 7 paid, " in compared
