"""Agents and teams of AutoGen that hand over, where no worker is needed to see what is asked."""

import asyncio
from typing import Any

import pytest

from .test_approvals import needs

pytestmark = needs("autogen_ext")


def asked(monkeypatch: pytest.MonkeyPatch, agent: Any) -> tuple[str, list[str]]:
    """Run it; return what it gives, and what a person was asked, who answers ``Rome``."""
    from runner.adapters.frameworks import autogen

    questions = list[str]()
    monkeypatch.setattr(autogen, "ask_text", lambda question, about: questions.append(question) or "Rome")
    return asyncio.run(autogen.FRAMEWORK.run(agent, {"prompt": "Book."})), questions


def agent_that(name: str, *says: Any, **about: Any) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    family = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}
    model = ReplayChatCompletionClient(list(says), model_info={**family, "structured_output": False})
    return AssistantAgent(name, model, **about)


def transfer(to: str, thought: str | None = None) -> Any:
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, RequestUsage

    call = FunctionCall(id="1", name=f"transfer_to_{to}", arguments="{}")
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought=thought)


@pytest.mark.parametrize("team", [True, False])
def test_an_agent_that_hands_over_to_nobody_who_is_there_asks_a_person(
    team: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autogen_agentchat.base import Handoff
    from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
    from autogen_agentchat.teams import Swarm

    # Given an agent that hands over to its user, and says what it wants to know
    user = Handoff(target="user", message="Over to the user.")
    agent = agent_that("clerk", transfer("user", "Where to?"), "Booked. END", handoffs=[user])
    if team:
        until = HandoffTermination(target="user") | TextMentionTermination("END")
        agent = Swarm([agent], termination_condition=until)
    # Then that is asked, and the agent goes on
    assert asked(monkeypatch, agent) == ("Booked. END", ["Where to?\nOver to the user."])


def test_a_team_that_ends_as_one_of_it_hands_over_to_another_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from autogen_agentchat.conditions import HandoffTermination
    from autogen_agentchat.teams import Swarm

    agents = [agent_that("clerk", transfer("payer"), handoffs=["payer"]), agent_that("payer", handoffs=["clerk"])]
    team = Swarm(agents, termination_condition=HandoffTermination(target="payer"))
    said, questions = asked(monkeypatch, team)
    assert (said.partition(",")[0], questions) == ("Transferred to payer", [])
