"""Tools of CrewAI's agents: each use is a step, used once, whatever dies; what models are asked is what CrewAI asks."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Call, ModelServer, Rule

CREW = """
    import os, signal, time
    from pathlib import Path
    from pydantic import BaseModel
    from crewai import LLM, Agent, Crew, Task
    from crewai.hooks import after_tool_call
    from crewai.tools import BaseTool, tool
    from runner.agents.tools import idempotency_key

    LOG = Path({log!r})

    def used(name, die):
        with LOG.open("a") as out:
            out.write(f"{{name}} {{die}} {{idempotency_key()}}" + chr(10))
        end(die, name, "in")

    def end(die, name, how):
        flag = LOG.with_name(f"{{die}}.died")
        if die == f"{{how}}-{{name}}" and "NO_DEATH" not in os.environ and not flag.exists():
            flag.touch()
            beside = {{"search": "count", "count": "search"}}.get(name)
            while beside and f"{{beside}} {{die}} " not in LOG.read_text():
                time.sleep(0.01)  # begun and not used yet, it would be in doubt and in no line
            os.kill(os.getpid(), signal.SIGKILL)

    @after_tool_call
    def after(context):
        end(context.tool_input.get("die", ""), context.tool_name, "after")

    class Found(BaseModel):
        words: list[str]

    @tool("search")
    def search(die: str) -> Found:
        "Searches."
        used("search", die)
        return Found(words=["owls", "fly"])

    class Count(BaseTool):
        name: str = "count"
        description: str = "Counts."
        def _run(self, die: str):
            used("count", die)
            return (1, 2.5, None)

    class Later(BaseTool):
        name: str = "later"
        description: str = "Takes its time."
        cache_function: object = lambda *_: False
        async def _run(self, die: str) -> dict:
            used("later", die)
            return {{"n": len(die)}}

    @tool("fails")
    def fails(die: str) -> str:
        "Fails."
        used("fails", die)
        raise KeyError("nothing there")

    def model(): return LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")

    helper = Agent(role="Helper", goal="help", backstory="It helps.", llm=model(), tools=[Later()])
    boss = Agent(role="Boss", goal="lead", backstory="It leads.", llm=model(), cache=False, allow_delegation=True,
                 tools=[search, Count(), fails])
    crew = Crew(agents=[boss, helper], tasks=[
        Task(name="lead", description="Case {{die}} of the boss.", expected_output="text", agent=boss)
    ])
"""

NATIVE = """
import os, runpy, sys
for die in sys.argv[2:]:
    print(runpy.run_path(sys.argv[1])["crew"].kickoff(inputs={"die": die}).raw)
"""

SUBMIT = """
import sys
from runner.client import Client
with Client() as client:
    for die in sys.argv[2:]:
        print(client.submit(sys.argv[1], inputs={"die": die}).id)
"""

CASES = ["in-search", "after-count", "in-fails", "after-fails", "in-later", "after-later"]


def _rules(die: str) -> list[Rule]:
    given = {"die": die}
    ask = {"task": f"Please help with {die}.", "context": "none", "coworker": "Helper"}
    return [
        Rule(lambda request, ask=ask: f"Current Task: {ask['task']}" in request.text, Call("later", given), "Helped."),
        Rule(
            f"Case {die} of the boss.",
            [Call("search", given), Call("count", given)],
            Call("fails", given),
            Call("delegate_work_to_coworker", ask),
            f"Done {die}.",
        ),
    ]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer([rule for die in CASES for rule in _rules(die)]) as server:
        yield server


@pytest.fixture
def run(crewai_fleet: Any, run_crewai: Callable[..., Any]) -> Callable[..., list[str]]:
    """What code printed, given a crew file and the cases."""

    def printed(code: str, crew: Path, **environment: str) -> list[str]:
        quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
        done = run_crewai("-c", code, crew, *CASES, env=crewai_fleet.environment(**quiet, **environment))
        assert done.returncode == 0, done.stderr[-3000:]
        return list(done.stdout.splitlines())

    return printed


def _asked(models: ModelServer) -> Counter[str]:
    return Counter(hashlib.sha256(json.dumps(one.body, sort_keys=True).encode()).hexdigest() for one in models.log)


@pytest.mark.timeout(300)
def test_each_tool_is_used_once_whatever_dies(
    run: Callable[..., list[str]],
    crewai_fleet: Any,
    client: Client,
    write_crew: Callable[..., Path],
    models: ModelServer,
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    crew = write_crew(CREW.format(url=models.root + "/v1", log=str(log)))
    told = run(NATIVE, crew, NO_DEATH="1")
    asked = _asked(models)
    assert len(asked) == models.requests == 6 * len(CASES)
    models.reset()
    log.unlink()

    crewai_fleet.start("--concurrency", "2")
    runs = dict(zip(CASES, run(SUBMIT, crew), strict=True))
    results = {die: client.run(run).wait(140) for die, run in runs.items()}
    assert [results[die].result for die in CASES] == told == [f"Done {die}." for die in CASES]
    again = _asked(models) - asked
    assert _asked(models).keys() == asked.keys()  # what CrewAI alone asks
    assert models.requests == sum(result.ledger["paid"] + result.ledger["in_doubt"] for result in results.values())
    lines = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    for die, result in results.items():
        used = {name: many for (name, of, _), many in lines.items() if of == die}
        keys = {name: [key for one, of, key in lines if (one, of) == (name, die)] for name in used}
        assert all(len(one) == 1 for one in keys.values()), keys
        how, _, victim = die.partition("-")
        beside = {"search", "count"} if victim in ("search", "count") else set()
        twice = {name for name, many in used.items() if many > 1}
        ledger, tools = result.ledger, result.ledger["tools"]
        assert (ledger["paid"], tools["paid"], used.keys()) == (6, 4, {"search", "count", "fails", "later"})
        assert {(one["agent"], one["calls"]) for one in ledger["by"]} == {("Boss", 4), ("Helper", 2)}
        assert sum(used.values()) <= tools["paid"] + tools["in_doubt"], (die, used, tools)
        if result.recoveries == 1:  # on a busy machine a worker may lose its claim alive: that takes back what it does
            assert sum(used.values()) == tools["paid"] + tools["in_doubt"], (die, used, tools)
            assert ({victim} if how == "in" else set()) <= twice <= beside | ({victim} if how == "in" else set()), (
                die,
                used,
            )
            assert (max(used.values()), ledger["in_doubt"]) == (1 + bool(twice), 0), (die, used)
    assert not again or sum(result.recoveries for result in results.values()) > len(CASES)


RECORDS = """
import asyncio, json
from types import SimpleNamespace
from pydantic import BaseModel, PrivateAttr
from crewai import Agent, Crew, Task
from crewai.hooks import InterceptionPoint, get_hooks
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolFailure
from runner.adapters.crewai import tools
from runner.journal import steps
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne

class Recorder(OneByOne):
    def begin_step(self, *_, **__): pass
    mark_sent = drop_step = begin_step
    def record_step(self, step, value, **_): RECORDED[step] = value

class Found(BaseModel):
    words: list[str]

class Opaque:
    def __str__(self): return "an opaque one"

USED = []

class Finds(BaseTool):
    name: str = "finds"
    description: str = "Finds."
    times: int = 0
    _last: str = PrivateAttr("")

    def _run(self, what: str) -> Found:
        USED.append(what)
        self.times += 1
        self._last = what
        class Inner(Found): pass
        values = {"model": Found(words=["a"]), "failure": ToolFailure(message="no"), "text": Opaque()}
        values |= {"inner": Inner(words=["b"]), "by place": "of before"}
        if what in ("raised", "secret"):
            raise LookupError("not there" if what == "raised" else "with sk-proj-abcdefgh12345678")
        return values[what]

def uses():
    found = Finds()
    agent = Agent(role="r", goal="g", backstory="b", llm="openai/gpt-4o-mini", tools=[found])
    crew = Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)])
    journal = Journal(dict(RECORDED), Recorder(), CancelScope())
    given, got = found.to_structured_tool(), []
    with inside_of(journal), tools.journaled(crew, SimpleNamespace(journal=journal)):
        for hook in get_hooks(InterceptionPoint.PRE_TOOL_CALL):
            hook(SimpleNamespace(tool=given, tool_name="finds"))
        for what in ("model", "failure", "text", "inner", "raised", "secret"):
            try:
                value = given.invoke({"what": what})
                got.append([type(value).__name__, given.format_output_for_agent(value)])
            except Exception as error:
                got.append([type(error).__name__, str(error)])
        got.append(["str", found._run("by place")])  # as another tool may use it
    return [got, found.times, found._last, len(USED)]

def key(what): return steps.identity("tool finds", ({"what": what},), {}) + "#1"

RECORDED = {}
print(json.dumps([uses(), uses()]))
assert "sk-proj" not in str(RECORDED)
USED.clear()
older = {
    "model": {"model": {"words": ["a"]}, "left": {"finds": {"times": "1", "_last": '"model"'}}, "ended": 1},
    "failure": {"failure": {"message": "no"}, "left": {"finds": {"times": "2"}}, "ended": 2},
    "text": {"text": "an opaque one"},
    "inner": {"model": {"words": ["b"]}},
    "raised": {"raised": ["LookupError", "not there"]},
    "secret": {"raised": ["LookupError", "with ***"], "left": {"finds": {"times": "6"}}, "ended": 3},
}
older["secret"]["left"]["finds"]["_last"] = '"secret"'
RECORDED = {key(what): json.dumps(record) for what, record in older.items()}
by_place = {"text": "of before", "left": {"finds": {"times": "7", "_last": '"by place"'}}, "ended": 4}
RECORDED[steps.identity("tool finds", ("by place", {}), {}) + "#1"] = json.dumps(by_place)
print(json.dumps(uses()))
"""


def test_what_a_tool_gave_is_told_again_also_from_the_records_of_older_versions(
    run_crewai: Callable[..., Any], tmp_path: Path
) -> None:
    crew = tmp_path / "records.py"
    crew.write_text(RECORDS)
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OPENAI_API_KEY": "sk-test"}
    done = run_crewai(crew, env={**os.environ, **quiet, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-3000:]
    (first, again), older = (json.loads(line) for line in done.stdout.splitlines())
    told = [
        ["Found", '{"words":["a"]}'],
        ["ToolFailure", "no"],
        ["Opaque", "an opaque one"],
        ["Inner", '{"words":["b"]}'],
        ["LookupError", "not there"],
        ["LookupError", "with ***"],
        ["str", "of before"],
    ]
    assert first == [told, 7, "by place", 7]
    for got, *kept in (again, older):
        assert [text for _, text in got] == [text for _, text in told]
        assert [got[i] for i in (0, 1, 4, 5)] == [told[i] for i in (0, 1, 4, 5)]
        assert kept[:2] == [7, "by place"]
    assert (again[-1], older[-1]) == (7, 0)
