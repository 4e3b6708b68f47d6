"""What the tools of Strands ask a person: by an interrupt in a graph, by a prompt that wants keys."""

import os
import signal
from pathlib import Path
from typing import Any

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .test_approvals import needs, pytestmark

__all__ = ["pytestmark"]

GRAPH = """
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder


@tool(context=True)
def pay(amount: int, tool_context: ToolContext) -> str:
    said = tool_context.interrupt("pay", reason={{"amount": amount}})
    return f"paid {{amount}}: {{said}}"


model = OpenAIModel(client_args={{"base_url": {url!r}, "api_key": "sk-secret"}}, model_id="gpt-4o-mini")
builder = GraphBuilder()
builder.add_node(Agent(name="payer", model=model, tools=[pay], callback_handler=None), "payer")
builder.add_node(Agent(name="clerk", model=model, callback_handler=None), "clerk")
builder.add_edge("payer", "clerk")
builder.set_execution_timeout(600)
graph = builder.build()
"""

PROMPT = """
import asyncio
from prompt_toolkit import HTML, PromptSession

if __name__ == "__main__":
    said = [PromptSession("Who? ").prompt(), asyncio.run(PromptSession().prompt_async(HTML("<bold>Sure?</bold> ")))]
    print(said)
"""


@needs("strands")
def test_what_an_agent_of_a_graph_asks_is_asked(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a graph whose first agent uses a tool that interrupts it
    def pays(request: Any) -> Answer:
        return Answer(calls=[Call("pay", {"amount": 5})]) if request.tools and not request.results else Answer("done")

    (file := tmp_path / "agent.py").touch()
    with ModelServer(pays) as models:
        file.write_text(GRAPH.format(url=models.url))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        waiting = client.submit(file, {"prompt": "Pay."}).wait(150)
        # When its process is killed, and a person answers
        assert [one.message for one in waiting.asked] == ['{"name": "pay", "reason": {"amount": 5}}'], waiting.error
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
        result = client.answer(waiting.run_id, "yes").wait(150)
        # Then the graph resumes with the answer, and no call was made twice
        assert result.outputs["agent"].replace(" ", "") == '{"clerk":"done","payer":"done"}', result.error
        assert [one.results for one in models.log] == [[], ["paid 5: yes"], []]


INPUT = """
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def pay(amount: int) -> str:
    return "paid: " + input(f"Pay {{amount}}? ")


model = OpenAIModel(client_args={{"base_url": {url!r}, "api_key": "sk-secret"}}, model_id="gpt-4o-mini")
agent = Agent(model=model, tools=[pay], callback_handler=None)
"""


@needs("strands")
def test_a_tool_that_reads_a_line_costs_no_call_until_it_is_answered(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent whose tool asks, in a framework that tells its model of all that a tool raises
    def pays(request: Any) -> Answer:
        return Answer(f"told: {request.results[0]}") if request.results else Answer(calls=[Call("pay", {"amount": 5})])

    (file := tmp_path / "agent.py").touch()
    with ModelServer(pays) as models:
        file.write_text(INPUT.format(url=models.url))
        fleet.start("--concurrency", "1", "--pool", "prefork")
        waiting = client.submit(file, {"prompt": "Pay."}).wait(150)
        # Then the model has been asked once when a person is
        assert [one.message for one in waiting.asked] == ["Pay 5?"], waiting.error
        assert models.requests == 1
        result = client.answer(waiting.run_id, "yes").wait(150)
        assert (result.outputs, models.requests) == ({"agent": "told: paid: yes"}, 2), result.error


@needs("prompt_toolkit")
def test_what_a_prompt_that_wants_keys_asks_is_asked(fleet: Any, client: Client, tmp_path: Path) -> None:
    (file := tmp_path / "script.py").write_text(PROMPT)
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result, asked = client.submit(f"{file}:__main__()").wait(150), []
    for answer in ("Ada", "yes"):
        assert result.status == "waiting", result.error
        asked += [one.message for one in result.asked]
        result = client.answer(result.run_id, answer).wait(150)
    assert (asked, result.result) == (["Who?", "Sure?"], "['Ada', 'yes']")
