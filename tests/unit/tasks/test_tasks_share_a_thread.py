"""The executor, where tasks share a thread: what may block has a thread, what waits lets others go on."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.core.states import RunStatus
from runner.engine.decisions import Commit, Fail, Grown
from runner.testing.in_process import InProcess

HEAD = """
    import asyncio, threading
    from runner import *

    def thread():
        return threading.current_thread().name
    """

CREW = """
    async def waits(ctx):
        await asyncio.sleep(0)
        return thread()

    def blocks(ctx):
        return f"{ctx.step('it', thread)} {thread()}"

    crew = Crew(tasks=[Task(name="waits", run=waits), Task(name="blocks", run=blocks)])
    """

AGENT = """
    class Says(BaseLLM):
        def call(self, messages, tools=None, **options):
            return thread()

    async def asks(ctx):
        said = Agent(role="writer", llm=Says("says")).kickoff("?").raw
        await asyncio.sleep(0)
        return f"{said} {thread()}"

    crew = Crew(tasks=[Task(name="asks", run=asks)])
    """

FLOW = """
    from runner.flows import Flow, listen, start

    class Counting(Flow):
        @start()
        def first(self):
            return thread()

        @listen(first)
        async def second(self, before):
            await asyncio.sleep(0)
            return f"{before} {thread()}"
    """


@pytest.fixture
def here(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path / "cache")


@pytest.fixture
def code(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "of" / "crew.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def worked(here: InProcess, tasks: Any) -> Callable[[], list[Any]]:
    """What has become of all jobs, done by one task of the loop."""

    def work() -> list[Any]:
        tasks.begin(here.work)
        (done,) = tasks.results()
        if isinstance(done, BaseException):
            raise done
        return [decision for _, decision in done]

    return work


def test_what_only_waits_is_done_on_the_loop_and_what_may_block_beside_it(
    here: InProcess, code: Any, worked: Callable[[], list[Any]]
) -> None:
    run = here.submit(code(CREW))
    assert [type(one) for one in worked()] == [Commit, Commit]
    texts = here.texts(run)
    assert texts["waits"] == "tasks"
    step, own = texts["blocks"].split()
    assert step == own == "task"


def test_an_agent_that_a_coroutine_asks_answers_in_the_coroutines_thread(
    here: InProcess, code: Any, worked: Callable[[], list[Any]]
) -> None:
    run = here.submit(code(AGENT))
    assert [type(one) for one in worked()] == [Commit]
    assert here.texts(run) == {"asks": "tasks tasks"}


def test_a_flow_grows_there_too(here: InProcess, code: Any, worked: Callable[[], list[Any]]) -> None:
    run = here.submit(code(FLOW))
    decisions = worked()
    assert decisions
    assert {type(one) for one in decisions} == {Grown}
    assert here.runs.get(run).status is RunStatus.completed
    first, second = sorted(here.texts(run).values(), key=len)
    assert first != "tasks"
    assert second.startswith(first)


def test_code_that_cannot_be_read_fails_its_run_with_what_python_says(
    here: InProcess, code: Any, worked: Callable[[], list[Any]]
) -> None:
    path = code("crew = Crew(tasks=[Task(name='a', run=lambda ctx: 'done')])")
    run = here.submit(path)
    here.store.memory.bundles.clear()
    (failed,) = worked()
    assert isinstance(failed, Fail)
    assert here.runs.get(run).status is RunStatus.failed


@pytest.mark.parametrize("many", [2, 5])
def test_what_several_tasks_need_is_read_once(
    tmp_path: Path, here: InProcess, code: Any, tasks: Any, many: int
) -> None:
    # Given as many workers as runs of one crew, which counts how often it is read
    reads = tmp_path / "reads"
    path = code(f"""
        with open({str(reads)!r}, "a") as file:
            file.write("read\\n")
        crew = Crew(tasks=[Task(name="waits", run=lambda ctx: "done")])
        """)
    others = [InProcess(tmp_path / "cache", store=here.store, worker=f"w{n}") for n in range(many - 1)]
    runs = [here.submit(path) for _ in range(many)]
    submitted = reads.read_text().count("read")
    # When all begin at once
    for one in (here, *others):
        tasks.begin(one.step)
    # Then
    assert [type(done[1]) for done in tasks.results()] == [Commit] * many
    assert {here.runs.get(run).status for run in runs} == {RunStatus.completed}
    assert reads.read_text().count("read") - submitted <= 1 + len(others)


MEETING = """
    MANY, here, all_here = 8, [], asyncio.Event()

    async def meets(ctx):
        here.append(await asyncio.to_thread(thread))
        if len(here) == MANY:
            all_here.set()
        await all_here.wait()
        return ctx.step("it", lambda: len(here))

    crew = Crew(tasks=[Task(name="meets", run=meets)])
    """


def test_more_coroutines_than_threads_are_there_at_once(tmp_path: Path, here: InProcess, code: Any, tasks: Any) -> None:
    path = code(MEETING)
    runs = [here.submit(path) for _ in range(8)]
    for one in (here, *(InProcess(tmp_path / "cache", store=here.store, worker=f"w{n}") for n in range(7))):
        tasks.begin(one.step)
    assert [type(done[1]) for done in tasks.results()] == [Commit] * 8
    assert [here.texts(run)["meets"] for run in runs] == ["8"] * 8


def test_what_a_coroutine_leaves_behind_ends_with_it(
    here: InProcess, code: Any, worked: Callable[[], list[Any]]
) -> None:
    run = here.submit(
        code("""
        said = []

        async def for_ever():
            try:
                await asyncio.Event().wait()
            finally:
                said.append("ended")

        async def leaves(ctx):
            kept.append(asyncio.create_task(for_ever()))
            await asyncio.sleep(0)
            return "left"

        async def looks(ctx):
            return ",".join(said)

        kept = []
        crew = Crew(tasks=[Task(name="leaves", run=leaves), Task(name="looks", run=looks)])
        """)
    )
    assert [type(one) for one in worked()] == [Commit, Commit]
    assert here.texts(run) == {"leaves": "left", "looks": "ended"}


def test_a_coroutine_may_have_a_thread(here: InProcess, code: Any, worked: Callable[[], list[Any]]) -> None:
    run = here.submit(
        code("""
        async def waits(ctx):
            return thread()

        crew = Crew(tasks=[Task(name="waits", run=waits, pool="thread")])
        """)
    )
    worked()
    assert here.texts(run) == {"waits": "task"}
