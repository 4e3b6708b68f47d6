"""Which frameworks are known, without any of them."""

import asyncio
import dataclasses
import datetime
import operator
import sys
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, NotRequired, Optional, TypedDict

import pytest
from pydantic import BaseModel, Field, create_model

from runner.adapters.frameworks.framework import as_output, declared_kinds
from runner.adapters.frameworks.llama_index import LlamaIndex
from runner.adapters.frameworks.plugin import PLUGIN
from runner.bundles import frameworks
from runner.bundles.program import Program
from runner.core.idempotency import originating


def test_each_is_known_by_the_module_that_its_users_import() -> None:
    assert {"pydantic_ai", "agents", "langgraph", "langchain", "google.adk"} <= set(PLUGIN.names) & set(PLUGIN.makers)
    assert {"crewai", "pydantic_ai", "google.adk", "agent_framework"} <= frameworks.names()


@pytest.mark.parametrize(
    ("line", "missing", "package"),
    [
        ("from pydantic_ai import Agent", "pydantic_ai", "pydantic-ai"),
        ("import agent_framework.openai", "agent_framework", "agent-framework"),
        ("from agents import Agent", "agents", "openai-agents"),
        ("from strands.models import BedrockModel", "strands", "strands-agents"),
        ("from google.adk.agents import Agent", "google", "google-adk"),
        ("    from google.adk.agents import Agent", "google.adk", "google-adk"),
        ("from llama_index.core import Document", "llama_index.core", "llama-index"),
    ],
)
def test_the_package_that_installs_it_is_said_and_no_other_of_the_same_name(
    line: str, missing: str, package: str
) -> None:
    assert frameworks.install(missing, line) == f" (pip install '{package}')"


@pytest.mark.parametrize(
    ("line", "missing"),
    [("from google.cloud import storage", "google"), ("import agents_of_mine", "agents_of_mine"), ("", "google")],
)
def test_of_what_no_framework_knows_nothing_is_said(line: str, missing: str) -> None:
    assert frameworks.install(missing, line) == ""


def test_each_framework_that_we_know_says_what_installs_it() -> None:
    assert all(PLUGIN.modules.values())


def test_of_a_framework_of_another_package_no_command_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGIN._points, "potters", next(iter(PLUGIN._points.values())))
    assert frameworks.install("potters") == ""


def test_another_package_of_that_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("agents")
    theirs.Agent = type("Agent", (), {})
    monkeypatch.setitem(sys.modules, "agents", theirs)
    for name in [name for name in sys.modules if name.startswith("agents.")]:
        monkeypatch.delitem(sys.modules, name)
    PLUGIN.imported()
    assert PLUGIN.adapter_of(theirs.Agent()) is None
    assert PLUGIN.parts(theirs.Agent()) == []


def test_a_program_is_of_the_adapter_that_it_was_submitted_with() -> None:
    found = PLUGIN.adapter_of(Program("main", adapter="program"))
    assert found is not None
    assert found.name == "program"
    assert PLUGIN.adapter_of(Program("main", adapter="crewai-program")) is None


def test_what_is_no_value_is_told_as_text() -> None:
    assert [as_output(one) for one in ("a", 1, None, [1], {"a": 1})] == ["a", 1, None, [1], {"a": 1}]
    assert as_output(ModuleType("strange")) == "<module 'strange'>"


class Asked(TypedDict):
    topic: str
    tries: NotRequired[int]
    pages: Annotated[list[str], operator.add]
    price: float | None
    deep: Optional[bool]  # noqa: UP045 - as authors write it
    which: int | str


@dataclasses.dataclass
class AskedOfData:
    tries: int
    options: dict[str, int]


class AskedOfModel(BaseModel):
    tries: int = 3


def test_what_inputs_are_is_as_the_class_of_a_state_declares_its_fields() -> None:
    assert declared_kinds(Asked) == {"tries": "integer", "pages": "array", "price": "number", "deep": "boolean"}
    assert declared_kinds(AskedOfData) == {"tries": "integer", "options": "object"}
    assert declared_kinds(AskedOfModel) == {"tries": "integer"}
    assert declared_kinds(None) == declared_kinds(int) == declared_kinds(dict) == {}


class StartEvent(BaseModel):
    """As the framework has one."""


class Workflow:
    start_event_class: type = StartEvent

    def run(self) -> None:
        """As the framework's does, it makes the first event of the inputs."""

    def _get_steps(self) -> dict[str, Any]:
        return {}


class OwnWorkflow(Workflow):
    def run(self) -> None:
        """The author makes the first event."""


def test_a_workflow_needs_what_its_first_event_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "workflows", SimpleNamespace(Workflow=Workflow))
    monkeypatch.setitem(sys.modules, "workflows.events", SimpleNamespace(StartEvent=StartEvent))
    framework, workflow, own = LlamaIndex(), Workflow(), OwnWorkflow()
    assert framework.inputs(workflow) == []
    fields: Any = {"topic": (str, ...), "pages": (int, Field(alias="pageCount")), "tries": (int, 3)}
    workflow.start_event_class = own.start_event_class = create_model("First", __base__=StartEvent, **fields)
    assert framework.inputs(workflow) == ["topic"]
    assert framework.inputs(own) == []


class Unknown(TypedDict):
    tries: "NoSuchClass"  # noqa: F821 - it is nowhere


def test_of_a_class_that_names_what_is_not_there_nothing_is_known() -> None:
    assert declared_kinds(Unknown) == {}


class Stop(BaseModel):
    at: datetime.date
    name: str = Field(alias="stopName")


@dataclasses.dataclass
class Trip:
    stops: list[Stop]
    tags: set[str]


def test_structured_output_is_json_whatever_its_class_is_of() -> None:
    stop = Stop(at=datetime.date(2026, 11, 24), stopName="Rome")
    told = {"at": "2026-11-24", "name": "Rome"}
    assert as_output(stop) == told
    assert as_output(Trip([stop], {"x"})) == {"stops": [told], "tags": ["x"]}
    assert as_output({"trip": [stop], "strange": ModuleType("strange")}) == {
        "trip": [told],
        "strange": "<module 'strange'>",
    }
    endless: list[Any] = []
    endless.append(endless)
    assert as_output(endless) == "[[...]]"


def test_a_handoff_of_a_swarm_happens_in_each_process_and_other_tools_are_steps() -> None:
    strands = pytest.importorskip("strands")
    multiagent = pytest.importorskip("strands.multiagent")
    from runner.adapters.frameworks.strands import FRAMEWORK

    FRAMEWORK.record_uses()
    look = strands.tool(lambda: "seen", name="look", description="Looks.")
    agent = strands.Agent(name="first", model=SimpleNamespace(stateful=False), tools=[look], callback_handler=None)
    multiagent.Swarm([agent])
    tools = agent.tool_registry.registry
    recorded = {name: hasattr(one._tool_func, "records_uses") for name, one in tools.items()}
    assert recorded == {"look": True, "handoff_to_agent": False}


def test_a_tool_of_an_authors_class_is_a_step_and_one_of_adk_is_not() -> None:
    tools: Any = pytest.importorskip("google.adk.tools")
    from runner.adapters.frameworks.google_adk import FRAMEWORK

    FRAMEWORK.record_uses()

    class Look(tools.BaseTool):
        async def run_async(self, *, args: Any, tool_context: Any) -> None: ...

    class Longer(Look): ...

    class Function(tools.FunctionTool):
        async def run_async(self, *, args: Any, tool_context: Any) -> Any:
            return await super().run_async(args=args, tool_context=tool_context)

    assert [hasattr(vars(one).get("run_async"), "records_uses") for one in (Look, Longer, Function)] == [
        True,
        False,
        False,
    ]
    assert not hasattr(tools.AgentTool.run_async, "records_uses")


def test_code_that_an_executor_of_adk_executes_is_a_step() -> None:
    executors: Any = pytest.importorskip("google.adk.code_executors")
    from runner.adapters.frameworks.google_adk import FRAMEWORK

    class Own(executors.UnsafeLocalCodeExecutor.__bases__[0]):
        def execute_code(self, invocation_context: Any, code_execution_input: Any) -> None: ...

    FRAMEWORK.record_uses()
    recorded = [hasattr(one.execute_code, "records_uses") for one in (Own, executors.UnsafeLocalCodeExecutor)]
    assert recorded == [True, True]


def test_callbacks_of_adk_run_again() -> None:
    agents: Any = pytest.importorskip("google.adk.agents")
    from runner.adapters.frameworks.google_adk import FRAMEWORK

    FRAMEWORK.record_uses()
    FRAMEWORK.record_uses()
    agent = agents.LlmAgent(name="one", model="gemini-2.5-flash", after_tool_callback=lambda **_: None)
    [callback] = agent.canonical_after_tool_callbacks
    assert callback.runs_again
    assert callback() is None
    assert agent.canonical_before_model_callbacks == []


def test_code_that_an_agent_of_autogen_executes_is_a_step() -> None:
    agents: Any = pytest.importorskip("autogen_agentchat.agents")
    from runner.adapters.frameworks.autogen import FRAMEWORK

    FRAMEWORK.record_uses()
    assert hasattr(agents.CodeExecutorAgent.execute_code_block, "records_uses")


def test_sessions_in_memory_have_the_same_ids_in_each_attempt_at_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = pytest.importorskip("google.adk.sessions")
    from runner.adapters.frameworks import google_adk

    google_adk.FRAMEWORK.record_uses()

    async def two() -> list[str]:
        service = sessions.InMemorySessionService()
        return [(await service.create_session(app_name="app", user_id="me")).id for _ in range(2)]

    assert len({*asyncio.run(two()), *asyncio.run(two())}) == 4
    found: list[list[str]] = []
    for journal in (ModuleType("first"), ModuleType("second")):
        monkeypatch.setattr(google_adk, "current_journal", lambda one=journal: (one, False))
        with originating("run:task"):
            found.append(asyncio.run(two()))
    assert found[0] == found[1]
    assert len(set(found[0])) == 2
