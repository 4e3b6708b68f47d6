"""The published suite for adapters, on CrewAI's: run by `test_conformance.py` in an interpreter that has CrewAI."""

from pathlib import Path
from typing import Any

import pytest
from crewai import Agent, Crew, Flow, Task
from crewai.flow import start

from runner.adapters.crewai.plugin import PLUGIN
from runner.engine.plugin import AdapterPlugin
from runner.testing import AdapterConformance


class Greeting(Flow):
    @start()
    def greet(self) -> str:
        return "hello"


class TestCrews(AdapterConformance):
    @pytest.fixture
    def plugin(self) -> AdapterPlugin:
        return PLUGIN

    @pytest.fixture
    def crew(self) -> Any:
        writer = Agent(role="Writer", goal="write", backstory="wrote", llm="gpt-4o-mini")
        first = Task(name="first", description="write", expected_output="a text", agent=writer, output_file="a.txt")
        second = Task(name="second", description="more", expected_output="a text", agent=writer, context=[first])
        return Crew(agents=[writer], tasks=[first, second])

    @pytest.fixture
    def crew_file(self, tmp_path: Path) -> Path:
        return tmp_path  # each task has a process of its own: the other tests of this folder do them on a fleet


class TestFlows(TestCrews):
    @pytest.fixture
    def crew(self) -> Any:
        return Greeting()
