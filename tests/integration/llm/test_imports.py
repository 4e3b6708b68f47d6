"""A file that asks models while it is imported: each call is paid where it is read to be submitted, and never again."""

import json
import os
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.bundles import bundle, loader, unpacked, unpacking
from runner.bundles.target import parse_target
from runner.bundles.unpacking import CALLS
from runner.client.submission import Prepared, prepare
from runner.core.errors import BadCrew, UnpaidReading
from runner.core.jobs import Refusal
from runner.engine.code_cache import CodeCache
from runner.engine.decisions import Commit, Decision, Retry
from runner.events import event_bus
from runner.testing import Answer, ModelServer
from runner.testing.in_process import InProcess

HEAD = """
import asyncio, os, threading
import httpx
from runner import Crew, Task

URL = {url!r}

def body(text, **more):
    return {{"model": "m", "messages": [{{"role": "user", "content": text}}], **more}}

def ask(text):
    answer = httpx.post(URL + "/chat/completions", json=body(text)).raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]
"""

CREW = """
def streamed(text):
    with httpx.stream("POST", URL + "/chat/completions", json=body(text, stream=True)) as answer:
        return "".join(answer.iter_text())

async def awaited(text):
    async with httpx.AsyncClient() as client:
        found = await asyncio.gather(*(client.post(URL + "/chat/completions", json=body(text)) for _ in range(2)))
    return [one.json()["choices"][0]["message"]["content"] for one in found]

def embedded(text):
    return httpx.post(URL + "/embeddings", json={"model": "e", "input": [text]}).json()["data"][0]["embedding"]

found = [ask("plain"), streamed("stream"), asyncio.run(awaited("awaited")), embedded("owls")[:3]]
ask(f"in {os.getcwd()}/data:\\n{os.path.dirname(__file__)}, {__name__}, {ask.__module__}")
thread = threading.Thread(target=lambda: found.append(ask("thread")))
thread.start(), thread.join()

def look(ctx):
    return {"found": found, "again": ask("plain"), "pid": os.getpid()}

crew = Crew(tasks=[Task(name="look", run=look), Task(name="more", run=lambda ctx: str(found))])
"""
ALONE = {"plain": 2, "stream": 1, "awaited": 2, "owls": 1, "in": 1, "thread": 1}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Each answer is another."""
    numbers = iter(range(1000))
    with ModelServer(lambda request: f"{request.text} {next(numbers)}") as one:
        yield one


@pytest.fixture
def crew_of(tmp_path: Path, models: ModelServer) -> Callable[..., Path]:
    def write(code: str, name: str = "crew.py") -> Path:
        folder = tmp_path / "crew"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(HEAD.format(url=models.url) + textwrap.dedent(code))
        return folder / name

    return write


@pytest.fixture
def here(tmp_path: Path) -> Iterator[InProcess]:
    with event_bus.scoped_handlers():
        yield InProcess(tmp_path / "cache")


def asked(models: ModelServer) -> Counter[str]:
    """How often what was asked; of what names a place, its first word."""
    bodies = [request.body for request in models.log]
    texts = [one["input"][0] if "input" in one else one["messages"][-1]["content"] for one in bodies]
    return Counter(text.partition(" ")[0] if "/" in text else text for text in texts)


def submitted(here: InProcess, prepared: Prepared, run: str = "r-1") -> str:
    """A run of what was read in another process."""
    here.runs.put_bundle(prepared.packed.sha256, prepared.packed.data)
    fields = {
        "crew": prepared.plan.crew,
        "adapter": prepared.adapter,
        "bundle": prepared.packed.sha256,
        "module": prepared.packed.module,
        "attr": prepared.attr,
        "plan": prepared.plan.digest,
        "inputs": "{}",
        "queue": "jobs",
        "envelope": "its own queue",
        "keep": "1000000",
        "checkpoint_on": "",
        "max_checkpoints": "0",
    }
    assert here.runs.create(run, prepared.plan, fields) == "created"
    return run


def in_another_process(here: InProcess, prepared: Prepared) -> Decision | Refusal:
    """What comes of the next job where its code is not imported yet."""
    here.executor.code = CodeCache(here.store, here.executor.cache)
    assert loader.unload(prepared.packed.sha256) or not loader.files_of(prepared.packed.sha256)
    [(_, decision)] = here.work(most=1)
    return decision


def test_what_is_asked_at_import_is_paid_where_the_file_is_read_and_answered_from_that_elsewhere(
    crew_of: Any, models: ModelServer, here: InProcess, tmp_path: Path
) -> None:
    prepared = prepare(str(crew_of(CREW)))
    assert (prepared.calls, prepared.calls_kept) == (7, 7)
    assert asked(models) == {**ALONE, "plain": 1}
    # Two runs of it, and for the second task of each the code is imported by another process
    for run in ("r-1", "r-2"):
        submitted(here, prepared, run)
        assert [type(in_another_process(here, prepared)) for _ in range(2)] == [Commit] * 2
    assert asked(models) == {**ALONE, "plain": 3}  # what a task asks itself is its own, whatever was asked at import
    texts = here.texts("r-1")
    found = json.loads(texts["look"])
    assert str(found["found"]) == texts["more"]
    assert found["found"][0].startswith("plain ")
    assert found["found"][0] != found["again"]
    assert len(set(found["found"][2])) == 2
    # What the code reads of its own folder is the author's alone
    root = here.executor.code.root(prepared.packed.sha256)
    assert [path.name for path in root.iterdir()] == ["crew.py"]
    # A second submission reads it for itself, as Python alone would
    assert prepare(str(crew_of(CREW))).packed.sha256 != prepared.packed.sha256
    assert asked(models) == {**{name: 2 * many for name, many in ALONE.items()}, "plain": 4}


def test_what_only_one_process_asks_at_import_is_recorded_for_its_task(
    crew_of: Any, models: ModelServer, here: InProcess
) -> None:
    # Given a file that asks something else wherever it is imported, and a task that fails at first
    code = """
    from pathlib import Path
    FAILED = Path({failed!r})
    found = ask(f"where {{'_crew_' in __name__ and bool(os.environ.get('HERE'))}}")

    def look(ctx):
        if not FAILED.exists():
            FAILED.touch()
            raise RuntimeError("at first")
        return found

    crew = Crew(tasks=[Task(name="look", run=look, max_retries=1)])
    """
    file = crew_of(code.format(failed=str(here.executor.cache / "failed")))
    prepared = prepare(str(file))
    run = submitted(here, prepared)
    here.executor.cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERE", "1")
        assert [type(in_another_process(here, prepared)) for _ in range(2)] == [Retry, Commit]
    assert asked(models) == {"where False": 1, "where True": 1}
    assert here.texts(run) == {"look": "where True 1"}
    [row] = here.runs.ledger(run)
    assert (row.calls, row.replayed, row.in_doubt) == (1, 1, 0)


def test_a_program_imports_its_file_in_its_task(crew_of: Any, models: ModelServer, here: InProcess) -> None:
    file = crew_of("""
    found = ask("import")

    def main():
        return f"{found}, {ask('import')}, {ask('main')}"

    """)
    prepared = prepare(f"{file}:main()")
    for run in ("r-1", "r-2"):
        submitted(here, prepared, run)
        here.work()
    assert asked(models) == {"import": 3, "main": 2}
    key = "main"
    assert here.texts("r-1") == {key: "import 0, import 1, main 2"}
    assert here.texts("r-2") == {key: "import 0, import 3, main 4"}


def test_a_script_does_nothing_of_its_own_before_its_task(
    crew_of: Any, models: ModelServer, here: InProcess, tmp_path: Path
) -> None:
    # Given a script that asks a model and uses a tool, which is no step, at its top level
    trace = tmp_path / "trace"
    file = crew_of(f"""
    found = ask("top")
    with open({str(trace)!r}, "a") as file:
        file.write(found)

    if __name__ == "__main__":
        print(found, ask("block"))
    """)
    # When it is submitted as a script, then it has done neither
    prepared = prepare(f"{file}:__main__()")
    assert models.requests == 0
    assert not trace.exists()
    # And each run does all of it once
    for run in ("r-1", "r-2"):
        submitted(here, prepared, run)
        here.work()
    assert asked(models) == {"top": 2, "block": 2}
    assert trace.read_text() == "top 0top 2"
    assert here.texts("r-2") == {"main": "top 2 block 3"}


SCRIPTS = {
    "a block": ("if __name__ == '__main__':\n    asyncio.run(main())", ["main"]),
    "a loop": ("for _ in range(2):\n    print(ask('loop'))\nasyncio.run(main())", ["loop", "loop", "main"]),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_of_a_framework_asks_nothing_before_its_task(
    script: str, crew_of: Any, models: ModelServer, here: InProcess
) -> None:
    # Given a script that asks a model by itself, and then by an agent that it makes in a function
    pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed")
    code, asks = SCRIPTS[script]
    file = crew_of("""
    from agents import Agent, OpenAIChatCompletionsModel, Runner
    from openai import AsyncOpenAI

    async def main():
        said = ask("main")
        async with AsyncOpenAI(base_url=URL, api_key="k") as client:
            model = OpenAIChatCompletionsModel("m", client)
            print((await Runner.run(Agent(name="a", model=model), said)).final_output)
    """)
    file.write_text(f"{file.read_text().replace('from runner import Crew, Task', '')}\n{code}\n")
    # When it is submitted, then it has asked nothing, and its run asks all of it
    prepared = prepare(str(file))
    assert models.requests == 0
    submitted(here, prepared)
    here.work()
    assert [request.text for request in models.log] == [*asks, f"main {len(asks) - 1}"]


def test_a_script_whose_first_call_is_made_in_a_thread_is_read_all_the_same(
    crew_of: Any, models: ModelServer, here: InProcess
) -> None:
    file = crew_of("""
    found = []
    thread = threading.Thread(target=lambda: found.append(ask("thread")))
    thread.start(), thread.join()
    print(found[0])
    """)
    prepared = prepare(f"{file}:__main__()")
    assert models.requests == 0
    submitted(here, prepared)
    here.work()
    assert asked(models) == {"thread": 1}
    assert here.texts("r-1") == {"main": "thread 0"}


def test_a_durable_function_that_is_called_at_import_is_called_once(
    crew_of: Any, models: ModelServer, here: InProcess, tmp_path: Path
) -> None:
    prepared = prepare(
        str(
            crew_of(f"""
    from runner import durable

    @durable
    def fetch(what):
        with open({str(tmp_path / "trace")!r}, "a") as file:
            file.write(what)
        return [what, ask(what)]

    found = fetch("a")
    crew = Crew(tasks=[Task(name=name, run=lambda ctx: str([found, fetch("a")])) for name in ("one", "two")])
    """)
        )
    )
    run = submitted(here, prepared)
    assert [type(in_another_process(here, prepared)) for _ in range(2)] == [Commit] * 2
    assert (tmp_path / "trace").read_text() == "aaa"  # each task calls it for itself
    assert here.texts(run) == {"one": "[['a', 'a 0'], ['a', 'a 1']]", "two": "[['a', 'a 0'], ['a', 'a 2']]"}


def test_a_file_that_is_refused_after_its_calls_says_so(crew_of: Any, models: ModelServer) -> None:
    with pytest.raises(
        BadCrew, match=r"crew.py:\d+: ValueError: no \(it had made 2 calls by then, which may be paid\)$"
    ):
        prepare(str(crew_of('ask("a"), ask("b")\nraise ValueError("no")')))


def test_a_file_that_is_read_without_paying_asks_nothing(crew_of: Any, models: ModelServer) -> None:
    code = "import time\ntry:\n    ask('a')\nexcept Exception: pass\ncrew = Crew(tasks=[Task(name='a', run=str)])"
    with pytest.raises(UnpaidReading, match=r"^crew.py asks a model while it is imported: it was not asked$"):
        prepare(str(crew_of(code)), paying=False)
    assert models.requests == 0


def test_a_file_that_asks_nothing_stores_nothing_more(crew_of: Any, here: InProcess) -> None:
    file = crew_of("crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x')])")
    prepared = prepare(str(file))
    assert prepared.packed == bundle.pack(parse_target(str(file)))
    submitted(here, prepared)
    here.work()
    assert [path.name for path in (here.executor.cache / "bundles").iterdir()] == [prepared.packed.sha256]


def test_answers_that_the_bundle_has_no_room_for_are_asked_for_again(
    crew_of: Any, models: ModelServer, here: InProcess
) -> None:
    models.use(lambda request: Answer("x" * 5000 + request.text))
    file = crew_of("found = [ask(str(n)) for n in range(3)]\ncrew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x')])")
    prepared = prepare(str(file), limit=13_000)
    assert (prepared.calls, prepared.calls_kept) == (3, 2)
    submitted(here, prepared)
    here.work()
    assert asked(models) == {"0": 1, "1": 1, "2": 2}


def test_the_answers_go_with_their_bundle_s_folder(crew_of: Any, models: ModelServer, tmp_path: Path) -> None:
    packed = prepare(str(crew_of("ask('a')\ncrew = Crew(tasks=[Task(name='a', run=str)])"))).packed
    home, handle = unpacked.hold(packed.sha256, cache := tmp_path / "cache", lambda: packed.data)
    [text] = unpacked.calls(home).values()
    assert json.loads(text)["model"] == "m"
    unpacked.tidy(cache, 0)  # it is in use
    assert unpacked.calls(home)
    os.close(handle)
    unpacked.tidy(cache, 0)
    assert not list(cache.iterdir())


def test_answers_that_a_killed_process_left_without_their_folder_are_removed_in_time(tmp_path: Path) -> None:
    old, new = (tmp_path / (digit * 64 + CALLS) for digit in "01")
    for place in (old, new):
        place.write_text("{}")
    os.utime(old, (long_ago := time.time() - 2 * unpacked.UNUSED, long_ago))
    unpacked.tidy(tmp_path, 0)
    assert list(tmp_path.iterdir()) == [new]  # its folder may be on its way


def test_a_bundle_of_as_many_files_as_there_may_be_has_no_room_for_answers(
    crew_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = bundle.pack(parse_target(str(crew_of(""))))
    for module in (bundle, unpacking):
        monkeypatch.setattr(module, "MAX_FILES", packed.files)
    filled, kept = bundle.with_calls(packed, {"a": "b"})
    assert kept == 0
    unpacking.unpack(filled.data, filled.sha256, tmp_path)


def test_only_a_file_that_asks_a_model_has_its_answers_looked_up(crew_of: Any, models: ModelServer) -> None:
    looked: list[str] = []

    def known() -> dict[str, str]:
        looked.append("up")
        return dict(answers)

    answers: dict[str, str] = {}
    quiet = crew_of("crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x')])")
    assert (prepare(str(quiet), known=known).calls, looked) == (0, [])
    asks = crew_of("found = ask('one')\ncrew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x')])")
    first = prepare(str(asks), known=known)
    assert (first.calls, looked) == (1, ["up"])
    answers |= unpacking.calls_in(first.packed.data, first.packed.sha256)
    again = prepare(str(asks), known=known)
    assert (again.calls, again.packed.sha256) == (0, first.packed.sha256)
    assert asked(models) == {"one": 1}
