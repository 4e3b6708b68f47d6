"""What a framework does not raise: a call that a model refused, and that it tells as its answer, fails the run."""

from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .agents import AGENTS
from .test_approvals import GOOGLE, needs, pytestmark

__all__ = ["pytestmark"]

_AGNO = """
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
from agno.workflow import Workflow


def model():
    return OpenAIChat("gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)


one = Agent(name="one", model=model(), telemetry=False)
"""
_STRANDS = """
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder, Swarm

client = {{"base_url": {url!r}, "api_key": "sk-secret", "max_retries": 0}}
model = OpenAIModel(client_args=client, model_id="gpt-4o-mini")
one = Agent(name="one", model=model, callback_handler=None)
two = Agent(name="two", model=model, callback_handler=None)
"""

_GRAPH = """
both = Swarm([one, two])
inner = GraphBuilder()
inner.add_node(both, "both")
graph = inner.build()
"""

_SMOLAGENTS = """
from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def look(i: int) -> str:
    '''Looks at a thing.

    Args:
        i: The number of the thing.
    '''
    return f"part {{i}}"


model = OpenAIServerModel("gpt-4o-mini", api_base={url!r}, api_key="sk-secret", client_kwargs={{"max_retries": 0}})
agent = ToolCallingAgent([look], model, verbosity_level=0, max_steps=1)
"""

_ADK = """
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

model = LiteLlm(model="openai/gpt-4o-mini", api_base={url!r}, api_key="sk-secret", num_retries=0, max_retries=0)
root_agent = LlmAgent(name="digger", model=model, instruction="You dig.")
"""

AGENTS_REFUSED = [
    *(
        pytest.param(AGENTS[name], id=name, marks=needs(module))
        for name, module in (
            ("pydantic-ai", "pydantic_ai"),
            ("openai-agents", "agents"),
            ("langchain", "langchain_openai"),
        )
    ),
    pytest.param(_AGNO, id="agno", marks=needs("agno")),
    pytest.param(
        _AGNO + "team = Team(name='both', members=[one], model=model(), telemetry=False)\n",
        id="agno team",
        marks=needs("agno"),
    ),
    pytest.param(
        _AGNO + "flow = Workflow(name='flow', steps=[one], telemetry=False)\n", id="agno workflow", marks=needs("agno")
    ),
    pytest.param(_STRANDS + "swarm = Swarm([one, two])\n", id="strands swarm", marks=needs("strands")),
    pytest.param(_STRANDS + _GRAPH, id="strands graph", marks=needs("strands")),
    pytest.param(_SMOLAGENTS, id="smolagents", marks=needs("smolagents")),
    pytest.param(_ADK, id="google-adk", marks=needs(GOOGLE)),
]


@pytest.mark.parametrize("agent", AGENTS_REFUSED)
def test_a_run_of_which_a_call_is_refused_fails_and_resumes_from_it(
    agent: str, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent whose last call the model refuses
    accepts = False

    def refuses(request: Any) -> Answer:
        if "max_steps" in agent and request.tools:
            return Answer(calls=[Call("look", {"i": 0})])  # its only step
        return Answer("done") if accepts else Answer("out of order", status=401)

    (file := tmp_path / "agent.py").touch()
    with ModelServer(refuses) as models:
        file.write_text(agent.format(url=models.url, trace="", dies=[]))
        fleet.start("--concurrency", "1")
        # When it is run
        failed = client.submit(file, {"prompt": "Dig."}).wait(150)
        # Then the run failed, and the error is the model's
        assert (failed.status, "out of order" in str(failed.error)) == ("failed", True), (failed.outputs, failed.error)
        # And when the model is in order again, it resumes
        accepts = True
        refused = len(models.log)
        result = client.resume(failed.run_id).wait(150)
        assert (result.status, len(models.log)) == ("completed", refused + 1), result.error
        assert "done" in str(result.outputs)
