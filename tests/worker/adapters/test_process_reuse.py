"""The process of a CrewAI task does the run's next, where that finds it as a new one would be."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.engine.jobs import TASKS_OF_ONE
from runner.testing import ModelRequest, ModelServer

CREW = """
    import os
    from pathlib import Path
    from crewai import LLM, Agent, Crew, Task

    {first}
    made, llm = [], LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)

    def note(output):
        earlier = len(made), sorted(path.name for path in Path().glob("*.note"))
        made.append(output)
        Path(f"{{output.name}}.note").touch()
        {later}
        with open({log!r}, "a") as out:
            print(os.getpid(), *earlier, sep="\\t", file=out)

    crew = Crew(agents=[agent], tasks=[
        Task(name=f"t{{n}}", description="Write of {topic}.", expected_output="text", agent=agent, callback=note)
        for n in range({tasks})
    ])
"""

LASTING = {
    "a listener": "from crewai.events import crewai_event_bus as bus, CrewKickoffStartedEvent as Started\n"
    "    bus.on(Started)(lambda source, event: None)",
    "a hook": "from crewai.hooks import register_before_llm_call_hook as register\n    register(lambda context: None)",
    "the environment": "os.environ['OF_THE_FILE'] = '1'",
    "a handler of a signal": "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
    "a handler of a library's lines": "import logging\n"
    "    logging.getLogger('a_library').addHandler(logging.StreamHandler())",
    "another kind of event loops": "import asyncio\n"
    "    asyncio.set_event_loop_policy(type('Mine', (asyncio.DefaultEventLoopPolicy,), {})())",
    "a method of CrewAI's": "kickoff = Crew.kickoff\n    Crew.kickoff = lambda *args, **how: kickoff(*args, **how)",
}
"""What a file may do that lasts as long as its process, in lines at its top."""

BY_A_CALLBACK = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"


@pytest.fixture(autouse=True)
def _files_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def written(write_crew: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[str, Path]]:
    def write(url: str, name: str = "crew", tasks: int = 2, first: str = "", later: str = "") -> tuple[str, Path]:
        log = tmp_path / f"{name}.log"
        text = CREW.format(url=url, log=str(log), tasks=tasks, first=first, later=later or "pass", topic=name)
        return str(write_crew(text, name)), log

    return write


def _noted(log: Path) -> list[list[str]]:
    return [line.split("\t") for line in log.read_text().splitlines()]


def test_one_process_does_the_tasks_of_a_run_each_as_in_a_process_of_its_own(crewai_fleet: Any, written: Any) -> None:
    many = TASKS_OF_ONE + 2
    with ModelServer() as models:
        # Given a crew with more tasks than a process does
        crew, log = written(models.root + "/v1", tasks=many)
        worker = crewai_fleet.start("--concurrency", "2")
        done = crewai_fleet.runner("submit", crew, "--json")
        assert done.returncode == 0, done.stderr
        assert models.summary()["requests"] == json.loads(done.stdout)["ledger"]["paid"] == many
    found = _noted(log)
    # Then each task has modules and a folder of its own, with what those before it left
    assert [line[1] for line in found] == ["0"] * many
    assert [line[2] for line in found] == [str(sorted(f"t{n}.note" for n in range(task))) for task in range(many)]
    # and the process ends in time
    pids = [line[0] for line in found]
    assert (len(set(pids[:TASKS_OF_ONE])), len(set(pids[TASKS_OF_ONE:])), len(set(pids))) == (1, 1, 2)
    # and each is in the worker's log once
    text = worker.log.read_text()
    assert [text.count(f"task t{n} completed") for n in range(many)] == [1] * many


def test_what_lasts_has_each_task_begin_in_another_process(crewai_fleet: Any, client: Client, written: Any) -> None:
    with ModelServer() as models:
        crewai_fleet.start("--concurrency", "2")
        files = {
            why: written(models.root + "/v1", f"c{n}", first=said) for n, (why, said) in enumerate(LASTING.items())
        }
        files["a thread"] = written(models.root + "/v1", "thread", later=BY_A_CALLBACK)
        files["nothing"] = written(models.root + "/v1", "nothing")
        runs = {why: crewai_fleet.runner("submit", crew, "--json") for why, (crew, _) in files.items()}
    assert {why: done.returncode for why, done in runs.items()} == dict.fromkeys(runs, 0)
    processes = {why: len({line[0] for line in _noted(log)}) for why, (_, log) in files.items()}
    assert processes == {**dict.fromkeys(files, 2), "nothing": 1}


def test_an_event_loop_that_a_task_ended_is_not_missed_by_the_file_for_the_next(
    crewai_fleet: Any, client: Client, written: Any
) -> None:
    with ModelServer() as models:
        # Given a file that looks for a loop when it is read, as clients of models do, and tasks that end theirs
        looks, ends = "import asyncio; asyncio.get_event_loop()", "asyncio.run(asyncio.sleep(0))"
        crew, log = written(models.root + "/v1", tasks=3, first=looks, later=ends)
        crewai_fleet.start("--concurrency", "2")
        done = crewai_fleet.runner("submit", crew, "--json")
        # Then its other tasks are done, and in the same process
        assert done.returncode == 0, done.stdout
        assert models.summary()["requests"] == 3
    assert len({line[0] for line in _noted(log)}) == 1


def test_a_kill_in_the_next_task_repeats_the_call_that_was_out(crewai_fleet: Any, client: Client, written: Any) -> None:
    # Given a model at whose second call the process is killed that has done the first task
    def answer(request: ModelRequest) -> str:
        if request.number == 2:
            os.kill(int(_noted(log)[0][0]), signal.SIGKILL)
        return "Done."

    with ModelServer(answer) as models:
        crew, log = written(models.root + "/v1", tasks=3)
        crewai_fleet.start("--concurrency", "1")
        # When a run is done
        run = crewai_fleet.runner("submit", crew, "--detach").stdout.split()[-1]
        end = client.run(run).wait(60)
        # Then that call alone is made again, and the task of the first is not done again
        assert end.status == "completed"
        assert (end.ledger["paid"], end.ledger["in_doubt"], end.recoveries) == (3, 1, 1)
        assert models.summary()["requests"] == 4
    found = _noted(log)
    assert [line[2] for line in found] == ["[]", "['t0.note']", "['t0.note', 't1.note']"]
    assert found[0][0] != found[1][0] == found[2][0]


def test_it_continues_only_where_no_job_waits(crewai_fleet: Any, client: Client, written: Any, held_back: Any) -> None:
    asked = list[str]()

    def answer(request: ModelRequest) -> str:
        asked.append("first" if "Write of first" in request.text else "other")
        return "Done."

    with held_back(answer) as (models, may_answer):
        # Given one process, which waits for a model, and another run
        first, log = written(models.root + "/v1", "first", tasks=2)
        other, _ = written(models.root + "/v1", "other", tasks=1)
        crewai_fleet.start("--concurrency", "1")
        runs = [crewai_fleet.runner("submit", first, "--detach").stdout.split()[-1]]
        models.wait_for(1, 60)
        runs.append(crewai_fleet.runner("submit", other, "--detach").stdout.split()[-1])
        # When it has its answer
        may_answer.set()
        assert [client.run(run).wait(60).status for run in runs] == ["completed"] * 2
    # Then it is the turn of the other run
    assert asked == ["first", "other", "first"]
    assert len({line[0] for line in _noted(log)}) == 2
