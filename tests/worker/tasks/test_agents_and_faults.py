"""Agents whose model and tools fail in every way there is: the run recovers, or fails with one clear line."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer, Rule

pytestmark = pytest.mark.timeout(120)

CREW = """
    from runner import Agent, LLM, tool

    @tool
    def look(thing: str, often: int = 1) -> str:
        '''Look at a thing.'''
        trace(f"step look {thing}")
        return f"{thing} is there"

    @tool
    def broken() -> str:
        '''Do not use it.'''
        trace("step broken")
        raise RuntimeError("out of order")

    @tool
    def endless() -> str:
        '''Take your time.'''
        trace("step endless")
        time.sleep(60)

    llm = LLM("openai/scripted", base_url=URL, api_key="sk-secret", stream=STREAM, max_retries=1)
    agent = Agent(role="worker", goal="work", llm=llm, tools=[look, broken, endless])
    def task(**more):
        return Task(name="work", description="Case {case}.", expected_output="words", agent=agent, **more)

    crew = Crew(agents=[agent], tasks=[task()])
    hurried = Crew(agents=[agent], tasks=[task(timeout=1.5)])
"""

FOUR_CALLS = [Call("look", {"thing": "sky"}), Call("broken"), Call("nowhere", {"n": 1}), Call("look", {"often": "x"})]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as one:
        yield one


@pytest.fixture
def crew(crew_of: Callable[[str], Path], models: ModelServer) -> Callable[[bool], Path]:
    return lambda stream: crew_of(CREW.replace("URL", repr(models.url)).replace("STREAM", repr(stream)))


def turn(number: int) -> Callable[[Any], bool]:
    return lambda request: request.turn == number


def test_what_passes_is_recovered_from(models: ModelServer, crew: Any, fleet: Any, client: Client, trace: Any) -> None:
    fleet.start("--concurrency", "1")
    for stream in (False, True):
        # Given a model that is overloaded at first, then ill, then babbles, then breaks off
        models.reset()
        models.use(
            [
                Rule(turn(0), Answer("slow down", status=429, retry_after=0.01), times=1),
                Rule(turn(1), Answer("slow down", status=429), times=1),
                Rule(turn(2), Answer("on fire", status=500), times=1),
                Rule(turn(2), Answer("half of this", malformed=True), times=1),
                Rule(turn(3), Answer("half of this", cut=0.6), times=1),
                Rule(None, FOUR_CALLS, Call("look", '{"thing": '), Call("look", {"thing": "sea"}), "All seen."),
            ]
        )
        result = client.submit(f"{crew(stream)}:crew", {"case": "all"}).wait(60)
        # Then the agent comes to its answer
        assert (result.status, result.result) == ("completed", "All seen."), result
        # And the model was told what each use of a tool came to, in the order in which it wanted them
        told = models.log[-1].results
        assert len(told) == 6
        assert (told[0], told[5]) == ("sky is there", "sea is there")
        for said, word in zip(told[1:5], ("out of order", "nowhere", "thing", "JSON"), strict=True):
            assert word in said, told
        times = 2 if stream else 1
        assert trace.steps() == {"step look sky": times, "step broken": times, "step look sea": times}
        # And the account is the server's: what came broken was paid for, and is in doubt
        assert (result.ledger["paid"], result.ledger["in_doubt"]) == (4, 2)
        assert models.paid == 6


def test_what_does_not_pass_fails_with_one_line(models: ModelServer, crew: Any, fleet: Any, client: Client) -> None:
    faults = {
        "limit": (Answer("too many", status=429, retry_after=0.01), "429"),
        "down": (Answer("on fire", status=500), "500"),
        "key": (Answer("wrong key", status=401), "401"),
        "noise": (Answer("half", malformed=True), "scripted"),
        "cut": (Answer("half", cut=0.5), "scripted"),
        "hang": (Call("endless"), "timeout"),
    }
    models.use([Rule(f"Case {case}.", answer) for case, (answer, _) in faults.items()])
    fleet.start("--concurrency", "2")
    path = crew(False)
    handles = {
        case: client.submit(f"{path}:{'hurried' if case == 'hang' else 'crew'}", {"case": case}) for case in faults
    }
    results = {case: handle.wait(60) for case, handle in handles.items()}
    for case, (_, word) in faults.items():
        result = results[case]
        assert result.status == "failed", (case, result)
        assert word in result.error, (case, result.error)
        assert "\n" not in result.error
        assert "sk-secret" not in result.error
    asked = Counter(
        request.text.partition("Case ")[2].partition(".")[0] for request in models.log if request.status == 200
    )
    for case, result in results.items():
        accounted = result.ledger["paid"] + result.ledger["in_doubt"]
        # A call that was begun when its time was up may not have come.
        assert accounted == asked[case] or (case == "hang" and accounted == asked[case] + 1), case
