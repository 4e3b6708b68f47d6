"""Agents whose process is killed after a person has answered, at each point before the answer's work is recorded."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .test_approvals import AGENTS, AUTOGEN, GOOGLE, GOOGLE_ADK, LLAMA_INDEX, PAY, STRANDS, models, needs, pytestmark
from .test_approvals_adk import ADK_WORKFLOW
from .test_approvals_strands import GRAPH, INPUT, PROMPT

__all__ = ["models", "pytestmark"]

DIES = """
import os, signal
from runner.core import fault_points


def _die(point):
    try:
        os.unlink(os.path.join({armed!r}, point))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


fault_points.reached = _die
"""
"""Kills the process at each point for which there is a file, once."""
USE = ["step begun, not done", "step done, not recorded"]
CALL = ["model call noted, not sent", "model call sent, not answered", "model answered, not recorded"]
RECORDED = "step recorded, task not ended"

ASKING = [
    pytest.param(STRANDS, '{"name": "pay", "reason": {"amount": %d}}', marks=needs("strands"), id="strands"),
    pytest.param(LLAMA_INDEX, '{"prefix": "pay", "reason": {"amount": %d}}', marks=needs("llama_index"), id="llama"),
]
MICROSOFT = (
    """
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient


@tool(approval_mode="always_require")
"""
    + PAY
    + """
model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
agent = Agent(client=model, name="payer", tools=[pay])
"""
)


def left_to(name: str) -> list[pytest.MarkDecorator]:
    """Where the soak alone has this one."""
    return [pytest.mark.soak] if name in ("pydantic-ai", "batched") else []


APPROVED = [
    pytest.param(param.values[0], 'May it use pay({"amount": %d})?', marks=[*param.marks, *left_to(name)], id=name)
    for param, name in zip(
        [*AGENTS, pytest.param(MICROSOFT, "", marks=needs("agent_framework"))],
        ["pydantic-ai", "openai-agents", "batched", "per-call", "agno", "adk", "microsoft"],
        strict=True,
    )
]


@pytest.mark.parametrize(("code", "asked"), [*APPROVED, *ASKING])
def test_what_follows_an_answer_is_done_once_more_for_each_kill(
    code: str, asked: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent that asks before it pays, and dies at each point that there is a file for
    file, trace, armed = tmp_path / "agent.py", tmp_path / "trace", tmp_path / "armed"
    armed.mkdir()
    file.write_text(DIES.format(armed=str(armed)) + code.format(url=models.url, trace=str(trace)))
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_MAX_ATTEMPTS="9")
    result = client.submit(file, {"prompt": "Pay."}).wait(150)
    # When it is killed at all of them after each answer
    rounds = {
        "yes": (5, [*USE, *CALL, RECORDED, "question put, not asked"]),
        "no": (7, [*CALL, RECORDED, "task done, not committed"]),
    }
    for answer, (amount, points) in rounds.items():
        assert [one.message for one in result.asked] == [asked % amount], result.error
        for point in points:
            (armed / point).touch()
        yes = {"approve": True} if answer == "yes" else {"reject": "no"}
        run = client.answer(result.run_id, **(yes if "May it" in asked else {"text": answer}))
        result = run.wait(150)
    # Then it comes to the same end, was killed at each, and each call and use was made once more where it was in doubt
    assert result.status == "completed", result.error
    assert not [*armed.iterdir()]
    tools = result.ledger["tools"]
    assert Counter(trace.read_text().split()) == {"5": 2}
    assert (tools["paid"], tools["in_doubt"]) == (1, 1)
    assert Counter(len(request.results) for request in models.log) == {0: 1, 1: 3, 2: 3}
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (3, 4)


def pays_and_ends(request: Any) -> Answer:
    """Has 5 paid where there is a tool for it."""
    if not request.tools:
        return Answer("a poem")
    if "transfer_to_user" in request.tools:
        return Answer("paid TERMINATE") if request.last == "yes" else Answer(calls=[Call("transfer_to_user", {})])
    return Answer(f"told: {request.results[0]}") if request.results else Answer(calls=[Call("pay", {"amount": 5})])


SWARM = """
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient

model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
payer = AssistantAgent("payer", model, handoffs=["user"])
until = HandoffTermination(target="user") | TextMentionTermination("TERMINATE")
team = Swarm([payer], termination_condition=until)
"""

CODE = """
import asyncio
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor


def approve(request: ApprovalRequest) -> ApprovalResponse:
    said = input("May it run this? ")
    return ApprovalResponse(approved=said == "yes", reason=said)


async def main():
    async with LocalCommandLineCodeExecutor(work_dir=".") as executor:
        coder = CodeExecutorAgent("coder", executor, approval_func=approve)
        team = RoundRobinGroupChat([coder], termination_condition=MaxMessageTermination(2))
        print((await team.run(task="```python\\nprint(6 * 7)\\n```")).messages[-1].content)


if __name__ == "__main__":
    asyncio.run(main())
"""


@needs("autogen_ext")
def test_an_approval_of_code_is_of_the_code_that_was_shown(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given two agents whose code is approved by the same words, and a worker for one task at a time
    armed, files = tmp_path / "armed", [tmp_path / "42.py", tmp_path / "35.py"]
    armed.mkdir()
    for file, code in zip(files, ["6 * 7", "5 * 7"], strict=True):
        file.write_text(DIES.format(armed=str(armed)) + CODE.replace("6 * 7", code))
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    asked = [client.submit(file).wait(150) for file in files]
    # Then each waits without it, for an answer to the code that is shown
    shown = [f"May it run this?\n```python\nprint({code})\n```" for code in ("6 * 7", "5 * 7")]
    assert [[one.message for one in result.asked] for result in asked] == [[one] for one in shown]
    # And when all processes are killed while they wait, and the next one after the answer, the code is run once more
    worker.kill_group()
    fleet.start("--concurrency", "1", "--pool", "prefork")
    (armed / "step done, not recorded").touch()
    done = [client.answer(one.run_id, text=text).wait(150) for one, text in zip(asked, ["yes", "no"], strict=True)]
    assert not [*armed.iterdir()]
    assert done[0].result == "42", done[0].error
    assert done[1].result.endswith("was not approved. Reason: no"), done[1].error


PEOPLE = [
    pytest.param(AUTOGEN, "", ["More.", "APPROVE"], "APPROVE", 1, marks=needs("autogen_agentchat"), id="autogen"),
    pytest.param(SWARM, "", ["no", "yes"], "paid TERMINATE", 3, marks=needs("autogen_agentchat"), id="autogen-swarm"),
    pytest.param(CODE, "", ["yes"], "42", 0, marks=needs("autogen_ext"), id="autogen-code"),
    pytest.param(PROMPT, ":__main__()", ["Ada", "yes"], "['Ada', 'yes']", 0, marks=needs("prompt_toolkit"), id="keys"),
    pytest.param(ADK_WORKFLOW, "", ["21"], "42", 0, marks=needs(GOOGLE), id="adk-workflow"),
    pytest.param(GOOGLE_ADK, "", ["approved"], 'told: {"result": "paid 5"}', 2, marks=needs(GOOGLE), id="adk"),
    pytest.param(INPUT, "", ["yes"], "told: paid: yes", 2, marks=needs("strands"), id="strands-input"),
    pytest.param(
        GRAPH, "", ["yes"], '{"clerk":"a poem","payer":"told: paid 5: yes"}', 3, marks=needs("strands"), id="strands"
    ),
]


@pytest.mark.parametrize(("code", "target", "answers", "output", "needed"), PEOPLE)
def test_what_is_asked_otherwise_is_answered_once_however_often_it_is_killed(
    code: str, target: str, answers: list[str], output: str, needed: int,
    models: ModelServer, fleet: Any, client: Client, tmp_path: Path,
) -> None:  # fmt: skip
    # Given what asks by a prompt, an interrupt, a request for input, and dies at each point that there is a file for
    models.use(pays_and_ends)
    file, armed = tmp_path / "agent.py", tmp_path / "armed"
    armed.mkdir()
    code = code if code in (ADK_WORKFLOW, PROMPT) else code.format(url=models.url, trace=str(tmp_path / "trace"))
    file.write_text(DIES.format(armed=str(armed)) + code)
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_MAX_ATTEMPTS="9")
    inputs = {} if "__main__" in code else {"prompt": "Go."}
    result, killed = client.submit(f"{file}{target}", inputs).wait(150), Counter[str]()
    # When it is killed at each of them after each answer
    points = {*USE, *CALL, RECORDED, "question put, not asked", "task done, not committed"}
    for answer in answers:
        assert result.status == "waiting", result.error
        for point in points:
            (armed / point).touch()
        result = client.answer(result.run_id, text=answer).wait(150)
        killed.update(points - {one.name for one in armed.iterdir()})
    # Then it comes to the same end, and what it asked of its model is what it needs and what was in doubt
    assert result.status == "completed", result.error
    assert result.result.replace(" ", "") == output.replace(" ", "")
    assert killed["task done, not committed"] == 1
    assert killed["question put, not asked"] == len(answers) - 1
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (needed, sum(killed[one] for one in CALL[1:]))
    assert models.requests == result.ledger["paid"] + result.ledger["in_doubt"]
