"""Kills at every call of crews of CrewAI (the whole of it is in ops/chaos), and in their callbacks."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Call, ModelRequest, ModelServer, Rule

pytestmark = pytest.mark.timeout(600)  # a quarter of a minute each where nobody else is at work

CALLBACKS = """
    import os, signal
    from pathlib import Path
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    LOG = Path({log!r})

    def die(where):
        flag = LOG.with_name(where)
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def doing(name, given=None):
        die(f"before {{name}}")
        with LOG.open("a") as out:
            out.write(name + chr(10))
        die(f"in {{name}}")
        return given

    @tool("look")
    def look() -> str:
        "Looks."
        return doing("tool", "seen")

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="R", goal="g", backstory="b", llm=llm, tools=[look])
    crew = Crew(
        agents=[agent],
        before_kickoff_callbacks=[lambda inputs: doing("before_kickoff", inputs)],
        after_kickoff_callbacks=[lambda output: doing("after_kickoff", output)],
        step_callback=lambda step: doing(f"step_callback {{type(step).__name__}}"),
        task_callback=lambda output: doing("task_callback"),
        tasks=[Task(
            name="one", description="one", expected_output="e", agent=agent,
            callback=lambda output: doing("callback"),
            guardrail=lambda output: doing("guardrail", (True, output)),
        )],
    )
"""


@pytest.mark.soak
def test_a_kill_at_every_call_costs_that_call(run_crewai: Callable[..., Any]) -> None:
    campaign = Path(__file__).parents[3] / "ops/chaos/crewai_calls.py"
    done = run_crewai(campaign, "--crews", "tools", "--moments", "flight", "--at-once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 runs, 5 kills, 0 wrong"


def test_a_callback_that_ended_is_called_once_and_one_that_a_kill_hit_once_more(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with ModelServer([Rule("one", Call("look", {}), "said")]) as models:
        crew = write_crew(CALLBACKS.format(url=models.root + "/v1", log=str(log)))
        crewai_fleet.start("--concurrency", "1", RUNNER_MAX_ATTEMPTS="100")
        run = crewai_fleet.runner("submit", str(crew), "--detach").stdout.split()[-1]
        result = client.run(run).wait(120)
    # Each was hit twice: before it had done anything, and when it had, and had not returned.
    once_more = ["before_kickoff", "tool", "step_callback AgentFinish", "callback", "task_callback", "after_kickoff"]
    lines = Counter(log.read_text().splitlines())
    asked_again = lines.pop(
        "guardrail"
    )  # the answer is the journal's, and a guardrail sees it whenever the task begins
    assert (lines, asked_again) == (dict.fromkeys(once_more, 2), 1 + 1 + 4)
    assert (result.status, result.recoveries, models.requests) == ("completed", 2 * (len(once_more) + 1), 2), result
    ledger = {name: result.ledger[name] for name in ("paid", "in_doubt", "tools")}
    assert ledger == {
        "paid": 2,
        "in_doubt": 0,
        "tools": {"paid": 1, "replayed": ledger["tools"]["replayed"], "in_doubt": 2},
    }


MANAGED = """
    from crewai import LLM, Agent, Crew, Process, Task

    def note(output):
        with open({log!r}, "a") as out:
            print(output.token_usage.successful_requests, output.token_usage.total_tokens, file=out)
        return output

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    crew = Crew(
        agents=[Agent(role="Worker", goal="g", backstory="b", llm=llm)],
        tasks=[Task(name="one", description="one", expected_output="e")],
        process=Process.hierarchical,
        manager_llm=LLM(model="openai/gpt-4o", base_url={url!r}, api_key="sk-secret"),
        after_kickoff_callbacks=[note],
    )
"""


def test_what_a_coworker_spent_is_counted_where_its_work_is_replayed(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    log, asked = tmp_path / "log", Counter[str]()
    worker = crewai_fleet.start("--concurrency", "1")

    def script(request: ModelRequest) -> Any:
        """The manager delegates, the coworker answers; in the second run the manager dies when it asks again."""
        manager = next((name for name in request.tools if name.startswith("delegate_work")), None)
        if manager and request.turn < 1:
            return Call(manager, {"task": "do it", "context": "for me", "coworker": "Worker"})
        asked["manager" if manager else "coworker"] += 1
        if manager and asked["manager"] == 2:
            for pid in worker.children():
                os.kill(pid, signal.SIGKILL)
        return "said"

    with ModelServer(script) as models:
        crew = write_crew(MANAGED.format(url=models.root + "/v1", log=str(log)))
        for _ in range(2):
            result = client.run(crewai_fleet.runner("submit", str(crew), "--detach").stdout.split()[-1]).wait(120)
            assert result.status == "completed", result
    whole, replayed = log.read_text().splitlines()
    assert asked == {"manager": 3, "coworker": 2}
    assert replayed == whole
    assert whole.split()[0] == "3"
