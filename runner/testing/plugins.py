"""What each thing that a package adds must do, by what it is: tests to subclass, one class for each entry point."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from runner.core.jobs import Claim, Job
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Usage
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import NOTHING
from runner.core.states import RunStatus
from runner.engine.adapter import Adapter
from runner.engine.decisions import Ask, Commit, Fail, Lost, Release, Retry
from runner.engine.observers import Observer
from runner.engine.plugin import AdapterPlugin
from runner.llm.recording.parsers import CallParser
from runner.providers.memory import MemoryStore
from runner.testing.in_process import InProcess

NO_CREWS: tuple[object, ...] = (None, 1, "a text", [], {}, object(), object, re)
ODD_BODIES = (b"", b"no JSON", b"\xff\xfe", b"null", b"3", b"[]", b"{}", b'{"error": {"message": "overloaded"}}')
PLAIN_ADDRESSES = (("GET", "https://example.org/"), ("POST", "https://example.org/upload"), ("HEAD", "http://[::1]:1/"))


class AdapterConformance:
    """Tests of an adapter.

    A subclass defines the fixtures ``plugin``, ``crew``, and ``crew_file``, which makes such a crew.
    """

    @pytest.fixture
    def plugin(self) -> AdapterPlugin:
        """Return the plugin under test. To be overridden."""
        raise NotImplementedError("give a fixture: plugin")

    @pytest.fixture
    def crew(self) -> Any:
        """Return a crew that the plugin accepts. To be overridden."""
        raise NotImplementedError("give a fixture: crew")

    @pytest.fixture
    def crew_file(self) -> Path:
        """Return the path of a file with such a crew. To be overridden."""
        raise NotImplementedError("give a fixture: crew_file")

    @pytest.fixture
    def adapter(self, plugin: AdapterPlugin, crew: Any) -> Adapter:
        """Return the adapter that accepts the crew."""
        found = plugin.adapter_of(crew)
        assert found is not None, "the plugin has no adapter for the crew"
        return found

    def test_it_accepts_its_crews_and_nothing_else(self, plugin: AdapterPlugin, adapter: Adapter, crew: Any) -> None:
        assert adapter.accepts(crew)
        assert adapter.name in plugin.names
        assert [thing for thing in NO_CREWS if plugin.adapter_of(thing) is not None or plugin.is_flow(thing)] == []

    def test_a_plan_is_the_same_each_time(self, adapter: Adapter, crew: Any) -> None:
        plan = adapter.plan(crew, "a crew")
        assert plan.tasks
        assert adapter.plan(crew, "a crew").digest == plan.digest, "workers plan it again, and must come to the same"

    def test_each_task_is_described(self, adapter: Adapter, crew: Any) -> None:
        for task in adapter.plan(crew, "a crew").tasks:
            adapter.warm(crew, task.key)
            attempts, delay = adapter.retry(crew, task.key)
            assert attempts >= 0
            assert delay >= 0
        assert all(isinstance(path, str) for path in adapter.output_files(crew).values())
        assert all(issubclass(model, BaseModel) for model in adapter.models(crew).values())

    def test_its_crews_are_done_as_a_worker_does_them(
        self, plugin: AdapterPlugin, crew_file: Path, tmp_path: Path
    ) -> None:
        if plugin.disposable:
            pytest.skip("each task of its crews has a process of its own: do them on a `Fleet`")
        here = InProcess(tmp_path / "cache")
        run = here.submit(crew_file)
        done = here.work()
        assert here.runs.status(run) is RunStatus.completed, [decision for _, decision in done]


class ObserverConformance:
    """Tests of an observer. A subclass defines the fixture ``observer``."""

    @pytest.fixture
    def observer(self) -> Observer:
        """Return the observer under test. To be overridden."""
        raise NotImplementedError("give a fixture: observer")

    @pytest.fixture
    def claim(self) -> Claim:
        """Return a claim as a worker has it."""
        return _claim()

    def test_it_hears_of_each_end_of_a_task(self, observer: Observer, claim: Claim) -> None:
        """Nothing is raised, which would be logged for each task."""
        ends = (
            Commit('{"raw": "done"}', (), NOTHING),
            Fail("it raised"),
            Retry(1.0, "it raised"),
            Ask("q#1", "{}"),
            Release(),
            Lost(),
        )
        for decision in ends:
            observer.task_started(claim)
            observer.task_ended(claim, decision, 0.25)

    @pytest.mark.parametrize("entry", [STEP, AccountKey("tool"), AccountKey("model", "an agent", "a model")])
    def test_it_hears_of_each_kind_of_step(self, observer: Observer, claim: Claim, entry: AccountKey) -> None:
        observer.step_recorded(claim, "a step#1", entry, Usage(3, 2) if entry.kind == "model" else NO_TOKENS)

    def test_it_hears_from_several_threads(self, observer: Observer, claim: Claim) -> None:
        def hear(number: int) -> None:
            observer.step_recorded(claim, f"a step#{number}", STEP, NO_TOKENS)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hear, range(64)))

    def test_it_changes_nothing(self, observer: Observer, claim: Claim) -> None:
        before = repr(claim)
        observer.task_started(claim)
        observer.task_ended(claim, Release(), 0.25)
        assert repr(claim) == before


@dataclass(frozen=True)
class CallExample:
    """A request that is a model call, its response, and what the ledger is to hold of them."""

    url: str
    body: bytes
    model: str
    answer: bytes
    usage: Usage
    method: str = "POST"


class CallParserConformance:
    """Tests of a call parser. A subclass defines the fixtures ``parser`` and ``example``."""

    @pytest.fixture
    def parser(self) -> CallParser:
        """Return the parser under test. To be overridden."""
        raise NotImplementedError("give a fixture: parser")

    @pytest.fixture
    def example(self) -> CallExample:
        """Return a call that the parser knows. To be overridden."""
        raise NotImplementedError("give a fixture: example")

    def test_it_knows_its_calls(self, parser: CallParser, example: CallExample) -> None:
        assert parser.may_be(example.method, example.url)
        assert parser.model(example.url, example.body) == example.model

    @pytest.mark.parametrize(("method", "url"), PLAIN_ADDRESSES)
    def test_other_requests_are_left_alone(self, parser: CallParser, method: str, url: str) -> None:
        assert not parser.may_be(method, url)

    @pytest.mark.parametrize("body", ODD_BODIES)
    def test_a_request_that_it_cannot_read_is_none_of_its_calls(
        self, parser: CallParser, example: CallExample, body: bytes
    ) -> None:
        """Nothing is raised, which the request would raise in turn."""
        assert parser.model(example.url, body) is None

    def test_it_counts_the_tokens(self, parser: CallParser, example: CallExample) -> None:
        assert parser.usage(example.answer) == example.usage

    @pytest.mark.parametrize("body", ODD_BODIES)
    def test_an_answer_without_tokens_is_no_error(self, parser: CallParser, body: bytes) -> None:
        assert parser.usage(body) in (None, NO_TOKENS)

    def test_the_last_line_is_a_regular_expression(self, parser: CallParser, example: CallExample) -> None:
        if (last := parser.last_line(example.url)) is not None:
            assert not re.compile(last, re.MULTILINE).search(b""), "a stream that broke off at once would be whole"


class CommandConformance:
    """Tests of a command. A subclass defines the fixture ``command``, a `click.Command`."""

    @pytest.fixture
    def command(self) -> Any:
        """Return the command under test. To be overridden."""
        raise NotImplementedError("give a fixture: command")

    @pytest.fixture
    def helped(self, command: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
        """Return the output of the command's ``--help``."""
        command.main(["--help"], prog_name="runner verb", standalone_mode=False)
        return iter(capsys.readouterr().out.splitlines())

    def test_its_help_says_how_to_use_it(self, helped: Iterator[str]) -> None:
        assert next(helped).startswith("Usage: runner verb")

    def test_the_list_of_verbs_says_what_it_does(self, command: Any) -> None:
        assert command.get_short_help_str()

    def test_an_option_that_it_does_not_have_is_bad_usage(self, command: Any) -> None:
        with pytest.raises(Exception, match="No such option") as raised:
            command.main(["--no-such-option"], prog_name="runner verb", standalone_mode=False)
        assert getattr(raised.value, "exit_code", None) == 2


def _claim() -> Claim:
    """Return a claim of a run in memory."""
    store, plan = MemoryStore(), Plan("a crew", (PlannedTask("a", (), ()),))
    fields = {"crew": plan.crew, "adapter": "native", "bundle": "", "module": "crew", "attr": "crew"}
    fields |= {"plan": plan.digest, "inputs": "{}", "queue": "jobs", "keep": "60000", "envelope": "its own queue"}
    assert store.runs.create("r-1", plan, {**fields, "checkpoint_on": "", "max_checkpoints": "0"}) == "created"
    store.workers.beat("w0", 60_000, "{}")
    found = store.claim(Job("r-1", "main", "a", 1), worker="w0", process="p0")
    assert isinstance(found, Claim)
    return found
