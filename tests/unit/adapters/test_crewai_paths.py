"""What was written for CrewAI imports from here, with one word replaced."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import runner.snapshots
from runner import events, flows, providers
from runner.adapters.crewai import import_paths
from runner.agents.llm_guardrail import LLMGuardrail, Verdict
from runner.providers import JsonProvider
from runner.snapshots import writer

SAME = {
    "agent.core": {"Agent": runner.Agent},
    "agents.agent_builder.base_agent": {"BaseAgent": runner.Agent},
    "crew": {"Crew": runner.Crew},
    "crews": {"CrewOutput": runner.CrewOutput},
    "crews.crew_output": {"CrewOutput": runner.CrewOutput},
    "lite_agent_output": {"LiteAgentOutput": runner.LiteAgentOutput},
    "task": {"Task": runner.Task},
    "llms.base_llm": {"BaseLLM": runner.BaseLLM},
    "flow.dsl": {"start": flows.start, "listen": flows.listen, "router": flows.router, "or_": flows.or_,
                 "and_": flows.and_, "human_feedback": flows.human_feedback},
    "flow.flow": {"Flow": flows.Flow, "start": flows.start, "listen": flows.listen, "FlowState": flows.FlowState,
                  "_INITIAL_STATE_CLASS_MARKER": flows.INITIAL_STATE_CLASS_MARKER},
    "flow.human_feedback": {"human_feedback": flows.human_feedback, "HumanFeedbackResult": flows.HumanFeedbackResult},
    "flow.async_feedback": {"HumanFeedbackProvider": flows.HumanFeedbackProvider,
                            "HumanFeedbackPending": flows.HumanFeedbackPending},
    "flow.async_feedback.types": {"PendingFeedbackContext": flows.PendingFeedbackContext},
    "flow.persistence.sqlite": {"SQLiteFlowPersistence": flows.SQLiteFlowPersistence},
    "flow.persistence": {"persist": flows.persist},
    "flow.persistence.decorators": {"persist": flows.persist},
    "state": {"CheckpointConfig": runner.CheckpointConfig, "RuntimeState": runner.RuntimeState,
              "CheckpointEventType": runner.CheckpointEventType, "JsonProvider": providers.JsonProvider,
              "SqliteProvider": providers.SqliteProvider},
    "state.checkpoint_config": {"CheckpointConfig": runner.CheckpointConfig},
    "state.checkpoint_listener": {"_find_checkpoint": runner.snapshots.find_checkpoint,
                                  "_SENTINEL": runner.snapshots.OPTED_OUT,
                                  "_resolve": runner.snapshots.resolve_checkpoint,
                                  "_on_any_event": writer.write_if_asked, "_do_checkpoint": writer.write_now},
    "state.event_record": {"EventRecord": runner.EventRecord},
    "state.provider.core": {"BaseProvider": providers.BaseProvider},
    "state.provider.json_provider": {"JsonProvider": providers.JsonProvider},
    "state.provider.sqlite_provider": {"SqliteProvider": providers.SqliteProvider},
    "state.provider.utils": {"detect_provider": providers.detect_provider},
    "state.runtime": {"RuntimeState": runner.RuntimeState, "_prepare_entities": runner.snapshots.prepare_entities,
                      "_sync_checkpoint_fields": runner.snapshots.sync_checkpoint_fields},
    "events": {"crewai_event_bus": runner.event_bus},
    "events.event_bus": {"crewai_event_bus": runner.event_bus, "CrewAIEventsBus": runner.EventBus},
    "events.base_events": {"BaseEvent": runner.BaseEvent},
    "events.event_context": {"resume_task_scope": runner.resume_task_scope, "_event_id_stack": None},
    "events.types.llm_events": {"LLMCallType": events.call_events.LLMCallType},
    "events.types.task_events": {"TaskCompletedEvent": None},
    "events.types.system_events": {"SIGNAL_EVENT_TYPES": None, "SignalType": None, "on_signal": None},
    "tasks": {"TaskOutput": runner.TaskOutput},
    "tools.base_tool": {"BaseTool": runner.BaseTool, "tool": runner.tool, "EnvVar": None},
    "tasks.llm_guardrail": {"LLMGuardrail": LLMGuardrail, "LLMGuardrailResult": Verdict},
    "tasks.task_output": {"TaskOutput": runner.TaskOutput},
    "version": {"get_crewai_version": runner.snapshots.get_version},
}  # fmt: skip


@pytest.mark.parametrize("path", sorted({*SAME, *import_paths.PATHS}))
def test_a_path_of_crewai_gives_what_is_ours(path):
    module = importlib.import_module(f"runner.{path}")
    for name, ours in SAME.get(path, {}).items():
        found = getattr(module, name)
        assert ours is None or found is ours


def test_the_bus_stays_the_bus_and_what_is_not_there_is_said():
    importlib.import_module("runner.events.event_bus")
    assert events.event_bus is runner.event_bus
    asked = flows.human_feedback
    importlib.import_module("runner.flow.human_feedback")
    assert importlib.import_module("runner.flow").human_feedback is asked is not None
    with pytest.raises(ImportError, match=r"cannot import name 'Nothing' from 'runner.state.checkpoint_listener'"):
        exec("from runner.state.checkpoint_listener import Nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'runner.knowledge'"):
        importlib.import_module("runner.knowledge")


def test_handlers_import_events_that_nothing_here_emits():
    from runner.events.types.a2a_events import A2AServerTaskCanceledEvent
    from runner.events.types.knowledge_events import KnowledgeRetrievalStartedEvent

    from runner.events import FlowPlotEvent, MemoryQueryStartedEvent

    found = [FlowPlotEvent, MemoryQueryStartedEvent, A2AServerTaskCanceledEvent, KnowledgeRetrievalStartedEvent]
    types = ["flow_plot", "memory_query_started", "a2a_server_task_canceled", "knowledge_search_query_started"]
    assert [one.model_fields["type"].default for one in found] == types
    assert events.MemoryQueryStartedEvent is MemoryQueryStartedEvent
    assert MemoryQueryStartedEvent(query="owls").query == "owls"
    for name in ("NothingEvent", "memory_query_started", "StarEvent", "SIGTERMEvent"):
        with pytest.raises(AttributeError):
            getattr(events, name)


@pytest.mark.slow
def test_nothing_more_is_imported_for_them():
    code = "import sys, runner; sys.exit(any(name.startswith('runner.llms') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_that_were_renamed_are_pruned_where_no_other_checkpoints_are(tmp_path: Path) -> None:
    """CrewAI prunes each JSON file of a branch's folder."""
    for branch in ("renamed", "mixed"):
        (tmp_path / branch).mkdir()
        for i in range(3):
            (tmp_path / branch / f"cp_{i}.json").write_text("{}")
    provider = JsonProvider()
    kept = [Path(provider.checkpoint(f"[{i}]", str(tmp_path), branch="mixed")).name for i in range(2)]
    assert [provider.prune(str(tmp_path), 1, branch=branch) for branch in ("renamed", "mixed")] == [2, 1]
    assert {path.name for path in (tmp_path / "mixed").iterdir()} == {"cp_0.json", "cp_1.json", "cp_2.json", kept[1]}


def test_a_flow_may_give_itself_its_name():
    class Named(flows.Flow):
        def __init__(self) -> None:
            super().__init__()
            self.flow_name = "mine"

        @flows.start()
        def begin(self) -> str:
            return self.flow_name

    assert Named().kickoff() == "mine"
