"""Tasks of CrewAI's crews have processes of their own, from a worker that has imported CrewAI before."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.adapters.crewai import process_setup
from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import json
    import os
    import signal
    import sys
    there = set(sys.modules)
    from crewai import LLM, Agent, Crew, Task
    from crewai.agents.agent_executor import AgentExecutor
    from crewai.events.types.agent_events import AgentExecutionStartedEvent
    from crewai.flow.runtime import FlowState
    from crewai_core import lock_store
    from openai.types.chat import ChatCompletion

    completed = [one.__pydantic_complete__ for one in (AgentExecutionStartedEvent, ChatCompletion)]
    completed += [issubclass(AgentExecutor._initial_state_t, FlowState)]

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)
    seen = []

    def note(output):
        about = {{
            "pid": os.getpid(), "seen": len(seen), "home": os.environ["HOME"], "at": os.environ["CREWAI_STORAGE_DIR"],
            "quiet": {{name: text for name, text in os.environ.items() if name.startswith("CREWAI_")}},
            "on SIGTERM": signal.getsignal(signal.SIGTERM).__module__, "completed": completed,
            "imported": sorted({{*(set(sys.modules) - there), *({{"cffi.cparser"}} & there)}}),
        }}
        with lock_store.lock("note"), open({log!r}, "a") as out:
            print(json.dumps(about), file=out)
        seen.append(output.raw)

    crew = Crew(agents=[agent], tasks=[
        Task(name=name, description=f"Write about {{name}}.", expected_output="text", agent=agent, callback=note)
        for name in ("one", "two", "three")
    ])
"""

ALONE = """
    from crewai import LLM, Agent, Crew, Task

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)
    crew = Crew(agents=[agent], tasks=[Task(name="a", description="Write.", expected_output="text", agent=agent)])
"""


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def crew(write_crew: Callable[..., Path], models: ModelServer, tmp_path: Path) -> Path:
    return write_crew(CREW.format(url=models.root + "/v1", log=str(tmp_path / "log")))


@pytest.mark.soak
@pytest.mark.usefixtures("started_afresh")
def test_each_task_finds_a_process_as_a_fresh_one_and_what_it_keeps_is_the_runs(
    crewai_fleet: Any, crew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a home that its owner's programs need, locks that are asked to be elsewhere, and a CrewAI of tomorrow
    home = Path(os.environ["HOME"])
    (home / ".aws").mkdir()
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")  # nothing there: CrewAI's locks must not look
    monkeypatch.setenv("CREWAI_DISABLE_VERSION_CHECK", "false")  # somebody wants to hear of newer versions
    told = tmp_path / "tomorrow" / "crewai-77.1.dist-info" / "METADATA"
    told.parent.mkdir(parents=True)
    told.write_text("Metadata-Version: 2.1\nName: crewai\nVersion: 77.1\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'tomorrow'}{os.pathsep}{os.environ['PYTHONPATH']}")
    # When a run is done
    worker = crewai_fleet.start("--concurrency", "2")
    done = crewai_fleet.runner("submit", str(crew), "--json")
    assert done.returncode == 0, done.stderr
    # Then each of its tasks had modules that nobody had used, in a process of that run's
    tasks = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [one["seen"] for one in tasks] == [0, 0, 0]
    assert len({one["pid"] for one in tasks}) == 1
    assert len(worker.children()) == 2
    # and none of them imported or made what the worker could have had for all
    assert [(one["imported"], one["completed"]) for one in tasks] == [([], [True, True, True])] * 3
    # and they had a home in common, where all that is their owner's can be seen, and nothing of CrewAI's goes back
    ((own, storage),) = {(Path(one["home"]), Path(one["at"])) for one in tasks}
    assert own.is_relative_to(crewai_fleet.folder)
    assert storage.parent == own.parent
    assert (own / ".aws").samefile(home / ".aws")
    assert {path.name for path in home.iterdir()} <= {".aws", ".config", ".local"}, "as CrewAI left it when submitted"
    # and CrewAI said no more than it was asked to, and left the signals alone
    assert [one["on SIGTERM"] for one in tasks] == ["runner.tasks.stops"] * 3
    assert tasks[0]["quiet"] == {
        "CREWAI_STORAGE_DIR": str(storage), "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false", "CREWAI_DISABLE_VERSION_CHECK": "false",
    }  # fmt: skip
    # and that nobody tested this version was said once, here and there
    for text in (done.stderr, worker.log.read_text()):
        assert text.count("CrewAI 77.1 is installed; this was tested with ") == 1


def test_one_process_waits_and_the_others_take_what_comes(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], eventually: Callable[..., Any], held_back: Any
) -> None:
    with held_back() as (models, may_answer):
        crew = str(write_crew(ALONE.format(url=models.root + "/v1")))
        worker = crewai_fleet.start("--concurrency", "2")
        runs = []
        try:
            for number in (1, 2):  # the second comes when the first one's process has long said that it takes no more
                runs.append(crewai_fleet.runner("submit", crew, "--detach").stdout.split()[-1])
                models.wait_for(number, 60)
        finally:
            may_answer.set()
        ends = [client.run(run).wait(timeout=60) for run in runs]
    assert [(end.status, end.recoveries, end.ledger["paid"]) for end in ends] == [("completed", 0, 1)] * 2
    eventually(lambda: len(worker.children()) == 2)


def test_a_pool_of_threads_leaves_the_tasks_to_a_pool_of_processes(
    crewai_fleet: Any, client: Client, crew: Path, eventually: Callable[..., Any]
) -> None:
    threads = crewai_fleet.start("--pool", "threads", "--concurrency", "2")
    run = crewai_fleet.runner("submit", str(crew), "--detach").stdout.split()[-1]
    eventually(lambda: "leaving it to a worker with --pool prefork" in threads.log.read_text())
    crewai_fleet.start("--concurrency", "1")
    assert client.run(run).wait(timeout=90).status == "completed"
    assert threads.log.read_text().count("--pool prefork") <= 2, "one line for a run, from each thread at most"


PRELOAD = """
import os, sys, threading
from pathlib import Path
from runner.adapters.crewai import process_setup as surroundings

surroundings.preload("crewai")
assert "lance_namespace_urllib3_client" not in sys.modules  # crews do not need it
surroundings.preload("crewai-flow")
assert "lance_namespace_urllib3_client" in sys.modules and "lancedb" in sys.modules
assert len(os.listdir("/proc/self/task")) == 1
import httpx, ssl
trusted = lambda client: client._transport._pool._ssl_context
asked = httpx.Client(verify=ssl.create_default_context())
assert trusted(httpx.Client()) is trusted(httpx.Client())  # the certificates were read once, for all
assert trusted(asked) is not trusted(httpx.Client()) is not trusted(httpx.Client(verify=False))
Path("others.pem").write_bytes(Path(os.environ.get("SSL_CERT_FILE") or __import__("certifi").where()).read_bytes())
before, os.environ["SSL_CERT_FILE"] = trusted(httpx.Client()), "others.pem"
others = trusted(httpx.Client())
assert before is not others is trusted(httpx.Client())
os.utime("others.pem", ns=(1, 1))
assert trusted(httpx.Client()) is not others  # they were renewed
open_here = [one.readlink() for one in Path("/proc/self/fd").glob("*") if one.is_symlink()]
assert not [one for one in open_here if str(one).startswith("socket:")]
import resource
from crewai import LLM, Agent, Crew, Task
from runner.adapters.crewai import fork_warmup
assert fork_warmup.leaves_nothing(lambda: None)
assert not fork_warmup.leaves_nothing(lambda: threading.Thread(target=threading.Event().wait, daemon=True).start())
assert not fork_warmup.leaves_nothing(lambda: os.dup(0))
if not (child := os.fork()):  # what a task changes of what it was forked with, and makes itself, in pages of memory
    httpx.HTTPTransport.handle_request = lambda _, asked: httpx.Response(200, json=fork_warmup._ANSWER, request=asked)
    agent = Agent(role="r", goal="g", backstory="b", llm=LLM(model="openai/gpt-4o-mini", api_key="-"))
    Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)]).kickoff()
    changed = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print("pages:", changed, flush=True)
    os._exit(changed > 5500)  # 4,500 where this was written; 7,900 before CrewAI's first kickoff was the worker's
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
if not (child := os.fork()):
    from crewai.flow import Flow, start

    class Made(Flow):
        @start()
        def one(self): return 1

    there, made = set(sys.modules), Made()
    assert not {one for one in set(sys.modules) - there if one.partition(".")[0] in ("lancedb", "pyarrow")}
    os._exit(made.kickoff())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
if not (child := os.fork()):  # LanceDB works in a fork, and in a fork of one where it was used
    import lancedb

    assert len(os.listdir("/proc/self/task")) == 1  # until it is asked
    table = lancedb.connect("lance").create_table("t", [{"v": [1.0, 2.0], "n": 1}])
    assert table.count_rows() == 1
    if not (inner := os.fork()):
        os._exit(lancedb.connect("lance").open_table("t").count_rows())
    os._exit(10 + os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
"""


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at a process's files")
def test_what_flows_import_is_there_before_forks_and_leaves_nothing_open(crewai_fleet: Any, tmp_path: Path) -> None:
    environment = {**crewai_fleet.environment(), "RUNNER_CACHE_DIR": str(tmp_path), **process_setup.QUIET}
    done = subprocess.run(
        [crewai_fleet.python, "-c", PRELOAD], env=environment, capture_output=True, text=True, check=False, timeout=150,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fork support" not in done.stderr, "nothing was under way"


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
