"""Inside of the tasks of CrewAI's crews: a person's word, files, events as they come, and checkpoints at them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.events import PAIRS, VALID_EVENT_PAIRS
from runner.testing import Call, ModelServer, Rule, eventually

CREW = """
    from pydantic import BaseModel
    from crewai import LLM, Agent, CheckpointConfig, Crew, Task
    from crewai.tools import tool

    @tool("search")
    def search(q: str) -> str:
        "Searches."
        note(f"search {{q}}")
        return "secret finding"

    def note(line):
        with open({log!r}, "a") as out:
            out.write(line + chr(10))

    def after(result):
        note(f"usage {{result.token_usage.successful_requests}} {{result.token_usage.prompt_tokens}}")
        return result

    class Facts(BaseModel):
        name: str

    def model(): return LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")

    finder = Agent(role="Finder", goal="find", backstory="It finds.", llm=model(), tools=[search])
    writer = Agent(role="Writer\\n", goal="write", backstory="It writes.", llm=model(), tools=[search])
    crew = Crew(
        cache=True,
        after_kickoff_callbacks=[after],
        agents=[finder, writer],
        tasks=[
            Task(name="find", description="Find {{topic}}.", expected_output="facts", agent=finder,
                 output_pydantic=Facts, output_file="found/{{topic}}.json", create_directory=True),
            Task(name="write", description="Write on {{topic}}.", expected_output="text", agent=writer,
                 human_input=True, output_file="{{topic}}.md"),
        ],
        checkpoint=CheckpointConfig(
            location="elsewhere", on_events=["tool_usage_finished", "llm_call_completed"], max_checkpoints=3
        ),
    )
"""

RULES = [
    Rule("Find owls.", [Call("search", {"q": "a"}), Call("search", {"q": "b"})], '{"name": "owl"}'),
    Rule("shorter", "Hoo."),
    Rule("longer", "Owls say hoo."),
    Rule("Write on owls.", Call("search", {"q": "a"}), "Owls are birds."),
]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(RULES) as server:
        yield server


@pytest.mark.timeout(300)
def test_a_person_files_and_events(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], models: ModelServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    crew = str(write_crew(CREW.format(url=models.root + "/v1", log=str(log))))
    crewai_fleet.start("--concurrency", "1")

    def runner(*arguments: str, code: int = 0) -> Any:
        done = crewai_fleet.runner(*arguments, "--json", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    told = runner("submit", crew, "--input", "topic=owls", code=5)
    run = told["run_id"]
    # A person objects twice and then takes it: each objection costs one call, and nothing is asked again.
    assert [(one["task"], one["agent"], one["method_output"]) for one in told["asked"]] == [
        ("write", "Writer", "Owls are birds.")
    ]
    asked = models.requests
    told = runner("answer", run, "--text", "longer", code=5)
    assert told["asked"][0]["method_output"] == "Owls say hoo."
    runner("answer", run, "--task", "write", "--reject", "shorter", code=5)
    assert models.requests == asked + 2
    done = runner("answer", run, "--approve")
    assert models.requests == asked + 2 == done["ledger"]["paid"]
    assert (done["outputs"]["find"], done["outputs"]["write"], done["result"]) == ('{"name": "owl"}', "Hoo.", "Hoo.")
    # The crew's cache goes from task to task, and so does what CrewAI counts.
    ledger, usage = done["ledger"], done["usage_metrics"]
    lines = log.read_text().splitlines()
    assert sorted(lines[:2]) == ["search a", "search b"]
    assert lines[2:] == [f"usage {ledger['paid']} {ledger['prompt_tokens']}"]
    assert (usage["successful_requests"], usage["prompt_tokens"]) == (ledger["paid"], ledger["prompt_tokens"])
    assert (tmp_path / "owls.md").read_text() == "Hoo."
    assert json.loads((tmp_path / "found/owls.json").read_text()) == {"name": "owl"}

    _look_at_events(client, run)
    found = runner("checkpoint", "list", run)
    # CrewAI's cache has what the tool gave: of each answer it is an event, and the calls that are replayed are none.
    assert [one["trigger"] for one in found] == ["tool_usage_finished", "llm_call_completed", "tool_usage_finished"]

    # A fork that does the second task again keeps the first one's file, under the name it was written with.
    fork = runner("fork", run, "--edit", "write=Edited.")
    files = runner("files", run, "--branch", fork["branch"], "--out", str(tmp_path / "given"))["files"]
    assert {(one["task"], one["path"]) for one in files} == {("find", "found/owls.json"), ("write", "owls.md")}
    assert (tmp_path / "given/owls.md").read_text() == "Edited."
    assert json.loads((tmp_path / "given/found/owls.json").read_text()) == {"name": "owl"}


def _look_at_events(client: Client, run: str) -> None:
    """Under CrewAI's names, in order, each that begins ended by its own, and nothing of what was said."""
    events = list(client.run(run).events())
    assert [one.seq for one in events] == sorted(one.seq for one in events)
    assert not any("secret" in str(one.fields) or "Owls are" in str(one.fields) for one in events)
    first = [one.type for one in events if one.fields.get("task") == "find"]
    assert [kind for kind in first if kind in TOLD] == [
        *("task_started", "agent_execution_started", "llm_call_started", "llm_call_completed"),
        *("tool_usage_started", "tool_usage_started", "tool_usage_finished", "tool_usage_finished"),
        *("llm_call_started", "llm_call_completed", "agent_execution_completed", "task_completed"),
    ]
    counts = Counter(one.type for one in events)
    assert counts["crew_kickoff_started"] == counts["crew_kickoff_completed"] == 1
    assert counts["task_started"] == counts["task_completed"] == 3
    for kind in ("agent_execution_started", "llm_call_started", "tool_usage_started"):
        assert counts[kind] == sum(counts[end] for end in PAIRS[kind]), kind
    by_seq = {one.seq: one.type for one in events}
    ends = [one for one in events if one.type in VALID_EVENT_PAIRS and one.started]
    assert {by_seq[one.started] for one in ends} >= {"llm_call_started", "tool_usage_started"}
    assert all(by_seq[one.started] == VALID_EVENT_PAIRS[one.type] for one in ends)
    calls = [one.fields for one in events if one.type == "llm_call_completed"]
    assert {one["agent"] for one in calls} == {"Finder", "Writer"}
    assert sum(int(one.get("replayed", 0)) for one in calls) == 2 + 3 + 4  # what came before, at each of three answers


TOLD = {
    *("task_started", "task_completed", "agent_execution_started", "agent_execution_completed"),
    *("llm_call_started", "llm_call_completed", "tool_usage_started", "tool_usage_finished"),
}


PACED = """
    from crewai import LLM, Agent, Crew, Task

    def crew(of):
        most = {{"crew": None, "agent": None, of: 1}}
        model = LLM(model="openai/gpt-4o-mini", base_url=f"{url}/{{of}}/v1", api_key="none")
        agent = Agent(role="A", goal="g", backstory="b", llm=model, max_rpm=most["agent"])
        tasks = [Task(name=name, description=name, expected_output="e", agent=agent) for name in ("one", "two")]
        return Crew(agents=[agent], tasks=tasks, max_rpm=most["crew"])

    of_crew, of_agent = crew("crew"), crew("agent")
"""


def _asks_in_two(run: Any) -> bool:
    return any(event.type == "llm_call_started" and event.fields.get("task") == "two" for event in run.events())


def test_a_call_waits_for_the_minute_of_the_run(
    crewai_fleet: Any,
    run_crewai: Callable[..., Any],
    client: Client,
    write_crew: Callable[..., Path],
    models: ModelServer,
) -> None:
    crew = write_crew(PACED.format(url=models.root))
    crewai_fleet.start("--concurrency", "2")
    submit = (
        "import sys; from runner.client import Client\n"
        "with Client() as client: print(*(client.submit(f'{sys.argv[1]}:of_{of}').id for of in ('crew', 'agent')))"
    )
    done = run_crewai("-c", submit, crew, env=crewai_fleet.environment())
    runs = [client.run(run) for run in done.stdout.split()]

    waiting = list(runs)

    def cancelled() -> bool:  # each as it asks: its minute may be over before the other one begins
        for run in [run for run in waiting if _asks_in_two(run)]:
            run.cancel()
            waiting.remove(run)
        return not waiting

    eventually(cancelled, within=100)
    assert [run.wait(60).status for run in runs] == ["cancelled", "cancelled"]
    assert sorted(request.path.split("/")[1] for request in models.log) == ["agent", "crew"]
