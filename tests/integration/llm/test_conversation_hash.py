"""An agent that is taken up continues from what is recorded: found by chains of hashes, as strictly as by requests."""

import json
import re
import sys
from typing import Any

import pytest

from runner import Crew, Task
from runner.agents import Agent, loop
from runner.agents.tools import tool
from runner.core.errors import ModelError
from runner.core.ledger import AccountKey, Counters
from runner.engine.work import Conversation
from runner.events import event_bus
from runner.events.call_events import LLMCallStartedEvent
from runner.llm.llm import LLM
from runner.llm.recording import conversation_hash, wire
from runner.testing import Call

from ...support.later import Later
from .conftest import journal_now

openai, openai_client = Later("openai"), Later("runner.llm.clients.openai")
anthropic_client = Later("runner.llm.clients.anthropic")

CODE = "the code"


@tool
def fetch(part: int) -> str:
    """Fetches a part."""
    return f"part {part} " * 100


@tool
def shelve(part: int) -> str:
    """Shelves a part."""
    return "done"


class Dig:
    """An agent that fetches so many parts."""

    def __init__(self, server: Any, calls: int) -> None:
        self.calls = calls
        self.llm: dict[str, Any] = {"model": "openai/gpt-4.1", "base_url": f"{server.url}", "api_key": "sk-secret"}
        self.agent: dict[str, Any] = {"role": "digger", "goal": "dig", "backstory": "b" * 5000, "max_iter": 1000}
        self.prompt, self.tools = "Dig.", [fetch]
        self.said = Conversation()
        server.use(self.answer)

    def answer(self, request: Any) -> Any:
        return Call("fetch", {"part": request.turn}) if request.turn < self.calls else "Dug."

    def __call__(self) -> str:
        self.said = Conversation([{"role": "system", "content": "You dig."}, {"role": "user", "content": self.prompt}])
        agent = Agent(**self.agent, llm=LLM(**self.llm))
        return loop.work(loop.state_for(agent, self.said, journal_now(), tools=self.tools, origin=""))


@pytest.fixture
def dig(server: Any) -> Dig:
    return Dig(server, 4)


@pytest.fixture
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the vendor's client is asked")

    for module in (openai_client, anthropic_client):
        monkeypatch.setattr(module.Client, "complete", refuse)


def unchained(account: Any) -> None:
    """What is recorded as older versions did."""
    for key, text in account.recorded.items():
        account.recorded[key] = re.sub(r'^\{"chain": "[0-9a-f]{32}", ', "{", text)


@pytest.mark.parametrize(
    ("model", "stream"), [("openai/gpt-4.1", False), ("openai/gpt-4.1", True), ("anthropic/claude-opus-4-7", False)]
)
def test_what_is_recorded_is_served_without_the_vendors_client(model, stream, server, account, attempt, dig, request):
    dig.llm["stream"] = stream
    if model.startswith("anthropic"):
        dig.llm |= {"model": model, "base_url": server.root}
    assert attempt(dig, code=CODE) == "Dug."
    said, paid = dig.said.messages, server.paid
    assert (paid, len(said)) == (5, 11)
    request.getfixturevalue("no_client")
    assert attempt(dig, code=CODE) == "Dug."
    assert (dig.said.messages, server.requests) == (said, paid)
    (entry,) = [one for one in account.replayed if one.kind == "model"]
    assert (account.replayed[entry], account.replayed.tokens[entry]) == (5, account.tokens)
    assert account.replayed[AccountKey("tool", model="fetch")] == 4


def test_it_is_the_same_by_the_old_way(server, account, attempt, dig):
    attempt(dig, code=CODE)
    assert attempt(dig, code=CODE, watched=True) == "Dug."
    said, by_chain = dig.said.messages, account.replayed
    account.replayed = Counters()
    unchained(account)
    assert attempt(dig, code=CODE, watched=True) == "Dug."
    assert (dig.said.messages, account.replayed, server.requests) == (said, by_chain, 5)
    assert account.replayed.tokens == by_chain.tokens


def test_after_what_is_recorded_a_call_is_made_and_found_from_then_on(server, account, attempt, dig, request):
    attempt(dig, code=CODE)
    assert attempt(dig, code=CODE, lose=1) == "Dug."
    assert (server.requests, server.paid) == (6, 6)
    request.getfixturevalue("no_client")
    assert attempt(dig, code=CODE) == "Dug."


@pytest.mark.parametrize("code", ["", "other code"])
def test_under_other_code_or_none_calls_are_known_by_their_requests(code, server, attempt, dig, monkeypatch):
    attempt(dig, code=CODE)
    monkeypatch.setattr(wire, "answer_of", lambda found: found["found by its request"])
    with pytest.raises(ModelError, match="found by its request"):
        attempt(dig, code=code)
    monkeypatch.undo()
    assert attempt(dig, code=code) == "Dug."
    assert server.requests == 5


@pytest.mark.parametrize("kind", ["agent", "crew"])
def test_a_kickoff_inside_of_a_task_is_replayed_so_too(kind, server, attempt, dig, request):
    def kick_off() -> str:
        agent = Agent(**dig.agent, llm=LLM(**dig.llm), tools=dig.tools)
        if kind == "agent":
            return agent.kickoff("Dig.").raw
        task = Task(name="dig", description="Dig.", expected_output="All.", agent=agent)
        return Crew(agents=[agent], tasks=[task]).kickoff().raw

    assert attempt(kick_off, code=CODE) == "Dug."
    request.getfixturevalue("no_client")
    assert attempt(kick_off, code=CODE) == "Dug."
    assert server.requests == 5


CHANGES = {
    "prompt": lambda dig: setattr(dig, "prompt", "Dig!"),
    "tools": lambda dig: setattr(dig, "tools", [fetch, shelve]),
    "temperature": lambda dig: dig.llm.update(temperature=0.5),
    "an option": lambda dig: dig.llm.update(seed=1),
    "model": lambda dig: dig.llm.update(model="openai/gpt-4.1-mini"),
    "address": lambda dig: dig.llm.update(base_url=dig.llm["base_url"].replace("127.0.0.1", "localhost")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_asked_otherwise_is_another_call(what, server, attempt, dig):
    attempt(dig, code=CODE)
    CHANGES[what](dig)
    assert attempt(dig, code=CODE) == "Dug."
    assert server.paid == 10


def test_the_window_into_which_a_conversation_is_fitted_is_part_of_it(server, attempt, dig):
    attempt(dig, code=CODE)
    dig.llm["context_window_size"] = 1000
    assert attempt(dig, code=CODE) == "Dug."
    assert server.paid > 5, "what was shortened is another request"


def test_another_version_of_the_vendors_client_is_asked(attempt, dig, monkeypatch, request):
    attempt(dig, code=CODE)
    monkeypatch.setattr("runner.llm.llm._version", lambda _: "99")
    request.getfixturevalue("no_client")
    with pytest.raises(ModelError, match="is asked"):
        attempt(dig, code=CODE)


def test_the_same_question_asked_again_gets_what_was_said_then(server, attempt):
    answers = iter(["one", "two", "three"])
    server.use(lambda _: next(answers))
    model = LLM("openai/gpt", base_url=server.url, api_key="k")

    def both() -> list[str]:
        agent = Agent(role="a", goal="g", backstory="b", llm=model)
        said = [Conversation([{"role": "user", "content": "?"}]) for _ in range(2)]
        return [loop.work(loop.state_for(agent, one, journal_now(), origin="")) for one in said]

    assert attempt(both, code=CODE) == ["one", "two"]
    assert attempt(both, code=CODE) == ["one", "two"]
    assert attempt(both, code=CODE, lose=1) == ["one", "three"]


def test_a_call_that_a_handler_makes_does_not_take_its_chain(server, account, attempt, dig):
    """Else what the handler was answered would be taken for what the agent was."""
    helper = LLM("openai/helper", base_url=server.url, api_key="k")
    seen: list[str] = []
    dig.calls = 0

    def help_out(_: object, event: LLMCallStartedEvent) -> None:
        if not seen:
            seen.append(str(event.model))
            helper.call("help")

    def dug() -> Any:
        said = dig()
        event_bus.flush()  # the handler's call has ended before its task
        return said

    server.use(lambda request: "helped" if request.text == "help" else "Dug.")
    with event_bus.scoped_handlers():
        event_bus.on(LLMCallStartedEvent)(help_out)
        attempt(dug, code=CODE, watched=True)
    assert seen, "the handler made its call"
    own = [key for key, text in account.recorded.items() if text.startswith('{"chain"') and "Dug." in text]
    others = [key for key, text in account.recorded.items() if text.startswith('{"chain"') and "helped" in text]
    assert (len(own), others) == (1, [])


def test_two_requests_of_one_chain_are_found_by_themselves(server, account, attempt, dig):
    attempt(dig, code=CODE)
    first = next(iter(text for key, text in account.recorded.items() if "@" in key))
    account.recorded["@" + "0" * 32 + "#1:9"] = first
    assert attempt(dig, code=CODE) == "Dug."
    assert server.paid == 5


# -- what it costs


def cost(server: Any, account: Any, attempt: Any, calls: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of a replay of so many calls: Python functions called, bytes hashed by chains, and bytes of JSON decoded."""
    dig = Dig(server, calls)
    account.recorded.clear()
    attempt(dig, code=CODE)
    found = {"calls": 0, "hashed": 0, "decoded": 0}
    text, loads = conversation_hash._text, json.loads

    def hashing(value: Any) -> Any:
        found["hashed"] += len(text(value) or b"")
        return text(value)

    def decoding(given: Any, **options: Any) -> Any:
        found["decoded"] += len(given)
        return loads(given, **options)

    def count(frame: object, event: str, argument: object) -> None:
        found["calls"] += event == "call"

    with monkeypatch.context() as patch:
        patch.setattr(conversation_hash, "_text", hashing)
        patch.setattr(json, "loads", decoding)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            attempt(dig, code=CODE)
        finally:
            sys.setprofile(before)
    return found


def test_a_replayed_call_costs_what_is_new(server, account, attempt, monkeypatch):
    """However deep it is: neither walks nor hashes nor decodes what was there before."""
    cost(server, account, attempt, 2, monkeypatch)
    few, some, many = (cost(server, account, attempt, calls, monkeypatch) for calls in (10, 30, 50))
    for name in few:
        grows = abs((many[name] - some[name]) - (some[name] - few[name]))
        assert grows <= 0.005 * some[name], (name, few, some, many)
    each = {name: (many[name] - few[name]) / 40 for name in few}
    assert each["calls"] <= CALLS_PER_REPLAY, each
    assert max(each["hashed"], each["decoded"]) <= BYTES_PER_REPLAY, each


CALLS_PER_REPLAY = 300  #: Python functions, of a call of a model and the use of a tool that it asked for
BYTES_PER_REPLAY = 2000  #: hashed, or decoded: what these two gave, and a little more


def test_a_foreign_clients_request_is_parsed_once(server, account, attempt, ask, monkeypatch):
    """When it is made. A recorded call is found by the hash of its body."""
    attempt(lambda: ask("it" * 10_000))
    parsed: list[int] = []
    model = wire._model
    monkeypatch.setattr(wire, "_model", lambda body, named: parsed.append(len(body)) or model(body, named))
    assert attempt(lambda: ask("it" * 10_000))
    assert (parsed, server.requests) == ([], 1)
    attempt(lambda: ask("other"))
    assert len(parsed) == 1


# -- what is sent


def test_a_conversation_makes_the_same_request(server):
    """One that is made otherwise is another call: then `FORM` is raised, so that no chain leads to the old one."""
    asked: list[dict[str, Any]] = []
    server.use(lambda request: asked.append(request.body) or "yes")
    said = [{"role": "user", "content": "half \ud83d"}]
    tools = [{"type": "function", "function": FUNCTION}]
    LLM("openai/m", base_url=server.url, api_key="k", temperature=0.5, seed=3).complete(said, tools)
    LLM("anthropic/m", base_url=server.root, api_key="k", stop="x").complete(said, tools)
    assert (conversation_hash.FORM, asked) == (1, REQUESTS)


FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
MARKED = {"cache_control": {"type": "ephemeral"}}
REQUESTS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "half ?"}], "model": "m", "seed": 3, "temperature": 0.5,
     "tools": [{"type": "function", "function": FUNCTION}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "half ?", **MARKED}]}], "model": "m",
     "max_tokens": 4096, "stop_sequences": ["x"],
     "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, **MARKED}]},
]  # fmt: skip
