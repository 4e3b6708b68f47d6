"""What this package itself adds under its entry points, and as verbs, passes the suites that others are given."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import Crew, Flow, Task, start
from runner.cli import VERBS, cli
from runner.core.errors import BadCrew
from runner.core.ledger import Usage
from runner.crews.plugin import PLUGIN as CREWS
from runner.engine import adapters
from runner.engine.observers import LogObserver, Observer
from runner.engine.plugin import AdapterPlugin
from runner.flows.plugin import PLUGIN as FLOWS
from runner.llm.recording import wire
from runner.llm.recording.parsers import CallParser
from runner.testing import (
    AdapterConformance,
    CallExample,
    CallParserConformance,
    CommandConformance,
    ObserverConformance,
)

CREW = """
from runner import Crew, Task

crew = Crew(tasks=[Task(name="a", run=lambda ctx: "done"), Task(name="b", run=lambda ctx: "done")])
"""
FLOW = """
from runner import Flow, listen, start

class Two(Flow):
    @start()
    def one(self):
        return "one"

    @listen(one)
    def two(self, said):
        return said + ", two"

flow = Two()
"""


class One(Flow):
    @start()
    def one(self) -> str:
        return "done"


class TestCrews(AdapterConformance):
    @pytest.fixture
    def plugin(self) -> AdapterPlugin:
        return CREWS

    @pytest.fixture
    def crew(self) -> Any:
        return Crew(tasks=[Task(name="a", run=lambda ctx: "done", output_file="a.txt")])

    @pytest.fixture
    def crew_file(self, tmp_path: Path) -> Path:
        (tmp_path / "crew.py").write_text(CREW)
        return tmp_path / "crew.py"


class TestFlows(AdapterConformance):
    @pytest.fixture
    def plugin(self) -> AdapterPlugin:
        return FLOWS

    @pytest.fixture
    def crew(self) -> Any:
        return One()

    @pytest.fixture
    def crew_file(self, tmp_path: Path) -> Path:
        (tmp_path / "crew.py").write_text(FLOW)
        return tmp_path / "crew.py"


class TestLogs(ObserverConformance):
    @pytest.fixture
    def observer(self) -> Observer:
        return LogObserver()


class Known(CallParser):
    """The endpoints of the known vendors, as a parser."""

    def may_be(self, method: str, url: str) -> bool:
        return wire.may_be(method, url)

    def model(self, url: str, body: bytes) -> str | None:
        found = wire.request("POST", url, body, lambda _: False)
        return found.model() if found is not None else None

    def last_line(self, url: str) -> bytes | None:
        found = wire.request("POST", url, b'{"model": "m"}', lambda _: False)
        return found.ends.pattern if found is not None and found.ends is not None else None

    def usage(self, body: bytes) -> Usage | None:
        return wire.usage_of(body)


ASKED = json.dumps({"model": "m", "messages": []}).encode()
EXAMPLES = {
    "OpenAI's chats": CallExample(
        "https://api.openai.com/v1/chat/completions", ASKED, "m",
        b'{"choices": [{}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}', Usage(5, 2),
    ),
    "OpenAI's responses": CallExample(
        "https://api.openai.com/v1/responses", ASKED, "m",
        b'{"output": [], "usage": {"input_tokens": 5, "output_tokens": 2}}', Usage(5, 2),
    ),
    "Anthropic": CallExample(
        "https://api.anthropic.com/v1/messages", ASKED, "m",
        b'{"content": [], "usage": {"input_tokens": 5, "output_tokens": 2}}', Usage(5, 2),
    ),
    "Ollama": CallExample(
        "http://127.0.0.1:11434/api/chat", ASKED, "m", b'{"prompt_eval_count": 5, "eval_count": 2}', Usage(5, 2)
    ),
}  # fmt: skip


class TestKnownVendors(CallParserConformance):
    @pytest.fixture
    def parser(self) -> CallParser:
        return Known()

    @pytest.fixture(params=EXAMPLES)
    def example(self, request: pytest.FixtureRequest) -> CallExample:
        return EXAMPLES[request.param]


class TestVerbs(CommandConformance):
    @pytest.fixture(params=[verb for verb in VERBS if verb != "checkpoint"])  # that is a group
    def command(self, request: pytest.FixtureRequest) -> Any:
        return cli.get_command(None, request.param)


def test_what_nobody_has_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters.preload("crew")
    adapters.preload("of nobody")
    assert adapters.own_models("of nobody") == ""
    assert adapters.untested("of nobody") is None
    assert adapters.preparations("of nobody") == ()
    with pytest.raises(BadCrew, match="an int is not a crew that can be run"):
        adapters.required(1)
    monkeypatch.setattr(adapters, "plugins", tuple)
    with pytest.raises(BadCrew, match="no adapter for any kind of crew is installed"):
        adapters.required(1)


def test_what_crews_of_a_kind_need_is_imported_where_processes_are_forked_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plugin = SimpleNamespace(preloaded=("ours",), names=("ours",), preload=asked.append)
    monkeypatch.setattr(adapters, "plugins", lambda: (plugin,))
    for name in adapters.preloaded():
        adapters.preload(name)
    assert asked == ["ours"]
