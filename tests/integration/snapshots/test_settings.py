"""CheckpointConfig: what can be set; and whose settings an event falls under."""

from typing import Any

import pytest
from pydantic import ValidationError

from runner import Agent, BaseLLM, CheckpointConfig, Crew, Task
from runner.providers import BaseProvider, JsonProvider, SqliteProvider
from runner.snapshots import OPTED_OUT, find_checkpoint, inside, resolve_checkpoint

# -- config


def test_the_defaults():
    config = CheckpointConfig()
    assert (config.location, config.on_events, config.max_checkpoints) == ("./.checkpoints", ["task_completed"], None)
    assert isinstance(config.provider, JsonProvider)
    assert config.restore_from is None
    assert not config.trigger_all
    assert CheckpointConfig(on_events=["*"]).trigger_all
    assert CheckpointConfig(trigger_all=True).on_events == ["*"]
    assert CheckpointConfig(trigger_all=True, on_events=["SIGTERM"]).on_events == ["SIGTERM", "*"]
    assert CheckpointConfig(trigger_all=False).on_events == ["task_completed"]
    for wrong in ({"trigger_all": "yes"}, {"trigger_all": False, "on_events": ["*"]}):
        with pytest.raises(ValidationError, match=r'trigger_all says whether "\*" is among on_events, and cannot be '):
            CheckpointConfig(**wrong)
    assert CheckpointConfig(on_events=["task_failed", "task_failed"]).trigger_events == {"task_failed"}


def test_a_wrong_event_is_told_the_nearest():
    with pytest.raises(ValidationError, match="did you mean 'llm_call_completed'"):
        CheckpointConfig(on_events=["llm_call_complete"])
    with pytest.raises(ValidationError, match=r'unknown checkpoint event 7: such as "task_completed"'):
        CheckpointConfig(on_events=[7])


def test_any_provider_is_taken_and_nothing_else(tmp_path):
    class Mine(BaseProvider):
        def checkpoint(self, data: str, location: str, **_: Any) -> str:
            return location

        def prune(self, location: str, max_keep: int, **_: Any) -> int:
            return 0

        def extract_id(self, location: str) -> str:
            return location

        def from_checkpoint(self, location: str) -> str:
            return ""

    assert CheckpointConfig(provider=Mine()).provider == Mine()
    with pytest.raises(ValidationError, match="provider"):
        CheckpointConfig(provider="json")
    with pytest.raises(ValidationError, match="max_checkpoints must be at least 1"):
        CheckpointConfig(max_checkpoints=0)
    assert CheckpointConfig(location="runs", provider=SqliteProvider()).location == "runs.db"
    assert CheckpointConfig(location="runs.sqlite", provider=SqliteProvider()).location == "runs.sqlite"


def test_everything_but_signals_is_meant_by_a_star():
    """A handler that nobody asked for by name is not put into the process."""
    config = CheckpointConfig(on_events=["*"])
    assert config.wants("llm_stream_chunk")
    assert not config.wants("SIGTERM")
    assert CheckpointConfig(on_events=["*", "SIGTERM"]).wants("SIGTERM")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"location": ""}, "location must not be empty"),
        ({"location": "redis://:pw@h/0", "provider": JsonProvider()}, "location is a Redis URL, and JsonProvider"),
        ({"on_events": ["sigterm"]}, "did you mean 'SIGTERM'?"),
    ],
)
def test_settings_that_cannot_be_meant(settings: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", "[?]")):
        CheckpointConfig(**settings)


# -- whose settings


def test_what_a_setting_means():
    config = CheckpointConfig(location="x")
    assert resolve_checkpoint(None) is None
    assert resolve_checkpoint(False) is OPTED_OUT
    assert resolve_checkpoint(config) is config
    assert resolve_checkpoint(True) == CheckpointConfig()


@pytest.mark.parametrize(
    ("crews", "agents", "expected"),
    [
        (None, None, None),
        (True, None, "./.checkpoints"),
        (True, False, None),
        (False, True, "./.checkpoints"),
        (True, CheckpointConfig(location="mine"), "mine"),
        (CheckpointConfig(location="crews"), None, "crews"),
    ],
)
def test_an_agents_and_a_tasks_are_the_agents_else_the_crews(crews, agents, expected):
    agent = Agent(role="r", checkpoint=agents)
    crew = Crew(agents=[agent], tasks=[Task(name="a", agent=agent)], checkpoint=crews)
    for source in (agent, crew.tasks[0]):
        found = find_checkpoint(source)
        assert (found.location if found else None) == expected


def test_a_task_without_an_agent_is_its_crews():
    crew = Crew(tasks=[Task(name="a")], checkpoint=CheckpointConfig(location="x"))
    assert find_checkpoint(crew.tasks[0]) is crew.checkpoint
    assert find_checkpoint(Task(name="alone")) is None


def test_a_model_a_tool_and_a_guardrail_belong_to_the_task_they_happen_in():
    crew = Crew(tasks=[Task(name="a")], checkpoint=CheckpointConfig(location="x"))
    for source in ("a tool", len, None):
        assert find_checkpoint(source) is None
        with inside(crew.tasks[0]):
            assert find_checkpoint(source) is crew.checkpoint
        assert find_checkpoint(source) is None


def test_an_agent_of_two_crews_is_the_one_that_runs(place):
    """The inner crew's kickoff does not stop the outer one's checkpoints."""
    shared = Agent(role="shared", llm=Answers())
    inner = Crew(tasks=[Task(name="inner", description="x", agent=shared)])
    tasks = [
        Task(name="first", run=lambda ctx: inner.kickoff().raw),
        Task(name="second", description="y", agent=shared),
    ]
    Crew(tasks=tasks, agents=[shared], checkpoint=CheckpointConfig(location=place.location)).kickoff()
    assert [[t["key"] for t in data["entities"][0]["tasks"] if t["output"]] for data in place.all] == [
        ["first"], ["first", "second"],
    ]  # fmt: skip


class Answers(BaseLLM):
    def __init__(self) -> None:
        super().__init__("answers")

    def call(self, messages: Any, **_: Any) -> str:
        return "an answer"
