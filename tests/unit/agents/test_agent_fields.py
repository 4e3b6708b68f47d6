"""What CrewAI's agents take: done here too, or refused in one line."""

from datetime import datetime

import pytest

from runner import Agent, BaseLLM, Crew, Task
from runner.core.errors import BadCrew, GuardrailFailed


class Says(BaseLLM):
    """Says these things in turn; keeps what it was told."""

    def __init__(self, *said: str) -> None:
        super().__init__(model="says")
        self.said, self.heard = list(said), []

    def call(self, messages, tools=None, **options):
        self.heard.append(messages)
        return self.said[min(len(self.heard), len(self.said)) - 1]


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("system_template", "<s>{{ .System }}", "messages"),
        ("allow_code_execution", True, "tool"),
        ("max_retry_limit", 5, "Task\\(max_retries"),
        ("knowledge_sources", ["x"], "tool"),
        ("max_itr", 3, "did you mean max_iter="),
        ("colour", "red", ""),
    ],
)
def test_what_would_be_ignored_is_refused(field, value, hint):
    with pytest.raises(BadCrew, match=rf"^not supported: Agent\({field}=\.\.\.\).*{hint}") as refused:
        Agent(role="A", **{field: value})
    assert "\n" not in str(refused.value)


def test_crewais_defaults_are_no_wishes():
    Agent(role="A", cache=False, max_retry_limit=2, use_system_prompt=True, allow_code_execution=False, reasoning=False)


def test_an_agent_knows_the_day_where_it_wants_to():
    llm = Says("fine")
    today = datetime.now().astimezone().strftime("%d/%m/%Y")
    agent = Agent(role="A", llm=llm, inject_date=True, date_format="%d/%m/%Y")
    agent.kickoff("Which day is it?")
    Crew(tasks=[Task(description="Which day is it?", agent=agent)]).kickoff()
    assert [f"Today is {today}." in told[0]["content"] for told in llm.heard] == [True, True]


@pytest.mark.parametrize("kickoff", [True, False], ids=["asked alone", "in a crew"])
def test_an_agents_guardrail_holds_for_what_it_answers(kickoff):
    def short(output):
        return (True, output.raw.upper()) if len(output.raw) < 6 else (False, "shorter, please")

    def answer(*said, **more):
        agent = Agent(role="A", llm=Says(*said), guardrail=short, **more)
        if kickoff:
            return agent.kickoff("Say it.").raw, agent
        return Crew(tasks=[Task(description="Say it.", agent=agent)]).kickoff().raw, agent

    raw, agent = answer("much too long", "short")
    assert raw == "SHORT"
    assert "shorter, please" in agent.llm.heard[1][-1]["content"]
    with pytest.raises(GuardrailFailed, match="shorter, please"):
        answer("much too long", guardrail_max_retries=1)


def test_what_a_kickoff_spent_is_told():
    tool_less = Agent(role="A", llm=Says("said"))
    crew = Crew(tasks=[Task(description="one", agent=tool_less), Task(description="two", agent=tool_less)])
    assert crew.kickoff().token_usage.successful_requests == 2
    assert crew.usage_metrics.total_tokens == 0, "this model does not count"
