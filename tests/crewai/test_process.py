"""Tasks of CrewAI's crews each have a process of their own, from a worker that has imported CrewAI before."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import os
    from crewai import LLM, Agent, Crew, Task
    from crewai_core import lock_store

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)
    seen = []

    def note(output):
        with lock_store.lock("note"), open({log!r}, "a") as out:
            print(os.getpid(), len(seen), os.environ["HOME"], os.environ["CREWAI_STORAGE_DIR"], file=out)
        seen.append(output.raw)

    crew = Crew(agents=[agent], tasks=[
        Task(name=name, description=f"Write about {{name}}.", expected_output="text", agent=agent, callback=note)
        for name in ("one", "two", "three")
    ])
"""


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def crew(write_crew: Callable[..., Path], models: ModelServer, tmp_path: Path) -> Path:
    return write_crew(CREW.format(url=models.root + "/v1", log=str(tmp_path / "log")))


def test_each_task_has_a_fresh_process_and_what_it_keeps_is_the_runs(
    crewai_fleet: Any, crew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["HOME"])
    (home / ".aws").mkdir()
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")  # nothing there: CrewAI's locks must not look
    worker = crewai_fleet.start("--concurrency", "2")
    done = crewai_fleet.runner("submit", str(crew), "--json", "--id", "a")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({pid for pid, *_ in lines}) == 3
    assert {seen for _, seen, *_ in lines} == {"0"}
    ((own, storage),) = {(home, storage) for *_, home, storage in lines}
    assert Path(own).is_relative_to(crewai_fleet.folder)
    assert Path(storage).parent == Path(own).parent
    assert (Path(own) / ".aws").samefile(home / ".aws")
    assert {path.name for path in home.iterdir()} <= {".aws", ".config", ".local"}, "as CrewAI left it when submitted"
    assert len(worker.children()) == 2


def test_a_pool_of_threads_leaves_the_tasks_to_a_pool_of_processes(
    crewai_fleet: Any, client: Client, crew: Path, eventually: Callable[..., Any]
) -> None:
    threads = crewai_fleet.start("--pool", "threads", "--concurrency", "2")
    run = crewai_fleet.runner("submit", str(crew), "--detach").stdout.split()[-1]
    eventually(lambda: "a worker with --pool prefork takes it" in threads.log.read_text())
    crewai_fleet.start("--concurrency", "1")
    assert client.run(run).wait(timeout=90).status == "completed"
    assert threads.log.read_text().count("--pool prefork takes it") <= 2, "one line for a run, from each thread at most"


@pytest.mark.skipif(importlib.util.find_spec("crewai") is not None, reason="it is installed here")
def test_where_crewai_is_not_installed_the_run_says_so(
    crewai_fleet: Any, fleet: Any, client: Client, crew: Path
) -> None:
    run = crewai_fleet.runner("submit", str(crew), "--detach").stdout.split()[-1]
    fleet.python = sys.executable
    fleet.start("--concurrency", "1")
    result = client.run(run).wait(timeout=60)
    assert result.status == "failed"
    assert "no module named 'crewai'" in (result.error or "")
    assert "install it there and resume the run" in (result.error or "")
