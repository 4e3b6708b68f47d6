"""Which frameworks are known, without any of them."""

import dataclasses
import datetime
import sys
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, Field

from runner.adapters.frameworks.framework import as_output
from runner.adapters.frameworks.plugin import PLUGIN
from runner.bundles import frameworks
from runner.bundles.program import Program


def test_each_is_known_by_the_module_that_its_users_import() -> None:
    assert {"pydantic_ai", "agents", "langgraph", "langchain", "google.adk"} <= set(PLUGIN.names) & set(PLUGIN.makers)
    assert frameworks.install("pydantic_ai") == " (pip install 'pydantic-ai')"
    assert frameworks.install("agent_framework") == " (pip install 'agent-framework')"
    assert {"crewai", "pydantic_ai", "google.adk", "agent_framework"} <= frameworks.names()


def test_another_package_of_that_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("agents")
    theirs.Agent = type("Agent", (), {})  # type: ignore[attr-defined]
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
