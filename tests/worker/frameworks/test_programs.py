"""Files that run their agents themselves, and what two runs of one agent have in common: nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import BadCrew, BadInput
from runner.testing import Answer, Call, ModelServer

from ...support.soak import in_soak
from .test_kills import CALLS, digs, pytestmark, written

__all__ = ["pytestmark"]

ALONE = {
    "pydantic-ai": "agent.agent.run_sync('Dig.')",
    "openai-agents": "agent.Runner.run_sync(agent.digger, 'Dig.')",
    "langchain": "agent.graph.invoke({'messages': [{'role': 'user', 'content': 'Dig.'}]})",
}


@pytest.fixture
def models() -> Any:
    with ModelServer(digs) as one:
        yield one


@pytest.mark.parametrize("framework", ["pydantic-ai", *in_soak(*(one for one in ALONE if one != "pydantic-ai"))])
def test_the_same_requests_as_without_us(
    framework: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    file = written(tmp_path, framework, models)
    file.write_text(file.read_text().replace("import Agent, Open", "import Agent, Runner, Open"))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    assert client.submit(file, {"prompt": "Dig."}).wait(150).outputs == {"agent": "done"}
    ours = Counter(repr(request.body) for request in models.log)
    before = len(models.log)
    subprocess.run([sys.executable, "-c", f"import agent; {ALONE[framework]}"], cwd=tmp_path, check=True)
    assert Counter(repr(request.body) for request in models.log[before:]) == ours


def test_a_quickstart_that_runs_its_agent_is_one_task_and_gives_what_it_prints(
    models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a file that runs its agent when it is imported
    file = written(tmp_path, "pydantic-ai", models)
    file.write_text(f"{file.read_text()}\nresult = agent.run_sync('Dig.')\nprint('It is', result.output)\n")
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # When it is submitted
    result = client.submit(file).wait(150)
    # Then nothing ran where it was read, and its output is what it printed
    assert result.outputs == {"main": "It is done"}
    assert (tmp_path / "trace").read_text().split() == ["0", "1", "2"]
    assert result.ledger["paid"] == models.paid == 4


def test_a_program_that_returns_what_is_neither_json_nor_text_gives_what_it_prints(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given functions whose results have no JSON: one has no text either, the other one has
    (file := tmp_path / "script.py").write_text(
        "class Said:\n    def __str__(self):\n        return 'as text'\n\n"
        "def bare():\n    print('as printed')\n    return object()\n\n"
        "def said():\n    print('as printed')\n    return Said()\n"
    )
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # When they are run
    bare, said = client.submit(f"{file}:bare()"), client.submit(f"{file}:said()")
    # Then the result of the first is what it printed, which its log says; of the other its text
    assert [one.wait(150).outputs for one in (bare, said)] == [{"bare": "as printed"}, {"said": "as text"}]
    logged = [[event.fields["text"] for event in one.events() if event.type == "task_log"] for one in (bare, said)]
    assert logged == [["bare returned an object, which is not JSON: the result is what it printed"], []]


def test_a_function_that_is_named_is_run_with_the_run_s_inputs(fleet: Any, client: Client, tmp_path: Path) -> None:
    (file := tmp_path / "script.py").write_text(
        "def work(topic: str, many: int = 2) -> str:\n    return topic * many\n\n"
        "async def awaited(topic):\n    return {'about': topic}\n"
    )
    fleet.start("--concurrency", "1", "--pool", "prefork")
    typed = client.submit(f"{file}:work", {"topic": "owl", "many": "3"})
    awaited = client.submit(f"{file}:awaited", {"topic": "owl"})
    assert typed.wait(150).outputs == {"work": "owlowlowl"}
    assert awaited.wait(150).outputs == {"awaited": '{"about": "owl"}'}
    with pytest.raises(BadInput, match="needs the input 'topic'"):
        client.submit(f"{file}:work")


def test_what_libraries_log_is_what_they_log_alone(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a library that logs to where programs print, at the level that a worker logs at
    (tmp_path / "library.py").write_text(
        "import logging, sys\nlog = logging.getLogger('library')\nlog.addHandler(logging.StreamHandler(sys.stdout))\n"
    )
    file = tmp_path / "script.py"
    file.write_text(
        "from library import log\nif __name__ == '__main__':\n"
        "    log.info('asked')\n    log.warning('slow')\n    print('done')\n"
    )
    alone = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stdout
    # When its program is run by a worker that logs what it does
    fleet.start("--concurrency", "1", "--pool", "prefork", "--loglevel", "info")
    result = client.submit(f"{file}:__main__()").wait(150)
    # Then its output is what it prints alone
    assert (list(result.outputs.values()), result.error) == ([alone.rstrip("\n")], None)
    assert "[INFO" in fleet.log() or "INFO/" in fleet.log()


def test_what_an_agent_says_of_where_it_is_is_the_same_after_a_kill_and_nothing_in_it_is_hidden(
    models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent that tells its model its working directory, and a worker whose cache is below a hidden folder
    file = written(tmp_path, "pydantic-ai", models, dies=True)
    code = file.read_text().replace('"You dig."', "f'You are in {os.getcwd()}.'")
    assert "os.getcwd()" in code
    file.write_text(code)
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_CACHE_DIR=str(tmp_path / ".cache"))
    # When its process is killed in the middle
    result = client.submit(file, {"prompt": "Dig."}).wait(150)
    # Then it asks no more than it does alone, always from one place, which a reader of folders does not pass over
    assert (result.outputs, models.paid) == ({"agent": "done"}, CALLS), result.error
    said = {word for request in models.log for word in re.findall(r"You are in (\S+)\.['\"]", repr(request.body))}
    assert len(said) == 1
    place = said.pop()
    assert not any(part.startswith(".") for part in Path(place).parts), place


def test_what_a_file_logs_as_it_says_is_in_the_worker_s_log(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a program that sets up its logging, and logs below the level that the worker logs at
    (file := tmp_path / "script.py").write_text(
        "import logging\nlogging.basicConfig(level=logging.DEBUG, format='MINE %(message)s')\n"
        "if __name__ == '__main__':\n    logging.getLogger('mine').debug('key sk-%s', 'a1' * 20)\n    print('done')\n"
    )
    fleet.start("--concurrency", "1", "--pool", "prefork", "--loglevel", "info")
    # When it is run twice by one process
    for _ in range(2):
        assert client.submit(f"{file}:__main__()").wait(150).result == "done"
    # Then each line is there once, as it says, without secrets
    assert [line for line in fleet.log().splitlines() if "key " in line] == ["MINE key ***"] * 2


def test_what_a_file_does_to_logging_is_gone_with_its_task(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a program that sets up a logger that others use, switches logging off, and whose handler does not close
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(
        "import logging, os\n\nclass Own(logging.StreamHandler):\n"
        "    def emit(self, record):\n        os.write(2, f'FIRST {record.getMessage()}\\n'.encode())\n\n"
        "    def close(self):\n        raise ValueError('it does not close')\n\n"
        "for name in ('', 'asyncio', 'others'):\n"
        "    logging.getLogger(name).addHandler(Own())\n    logging.getLogger(name).setLevel(logging.DEBUG)\n"
        "logging.getLogger('others').debug('its own')\nlogging.disable(logging.WARNING)\n"
        "if __name__ == '__main__':\n    print(os.getpid())\n"
    )
    second.write_text(
        "import logging, os\nfor name in ('asyncio', 'others'):\n"
        "    logging.getLogger(name).debug('a line of the second')\n"
        "    logging.getLogger(name).warning('a warning of the second')\n"
        "if __name__ == '__main__':\n    print(os.getpid())\n"
    )
    fleet.start("--concurrency", "1", "--pool", "prefork", "--loglevel", "info")
    # When one process runs it, and then another's
    processes = [client.submit(f"{file}:__main__()").wait(150).result for file in (first, second, first, second)]
    # Then the process goes on, and the other's lines are where they are without the first
    assert len(set(processes)) == 1
    assert "failed inside the runner" not in fleet.log()
    lines = fleet.log().splitlines()
    assert [line for line in lines if line.startswith("FIRST")] == ["FIRST its own"] * 4
    assert not [line for line in lines if "a line of the second" in line]
    assert len([line for line in lines if "a warning of the second" in line]) == 4


@pytest.mark.parametrize("runs_itself", [False, True])
def test_relative_paths_are_those_of_the_project(
    runs_itself: bool, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a tool that reads a file beside its agent's, and appends to another
    (tmp_path / "notes.txt").write_text("note")
    file = written(tmp_path, "pydantic-ai", models)
    code = file.read_text().replace(
        'return f"part {i}"', "print(i, file=open('seen.txt', 'a'))\n    return open('notes.txt').read() + f' {i}'"
    )
    assert "notes.txt" in code
    file.write_text(code + ("\nprint('It is', agent.run_sync('Dig.').output)\n" if runs_itself else ""))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # When it is run, twice by one process
    for _ in range(2):
        result = client.submit(file, {} if runs_itself else {"prompt": "Dig."}).wait(150)
        # Then it finds what it finds alone, and what it wrote is kept, not in the bundle
        assert result.status == "completed", result.error
        assert models.log[-1].results == ["note 0", "note 1", "note 2"]
        left = {one.path: one.data for one in client.run(result.run_id).files()}
        assert left == {"seen.txt": b"0\n1\n2\n"}


DATABASE = """
import os, signal, sqlite3
from pathlib import Path

from runner import durable


@durable
def use(n):
    return n


def main(killed):
    talk = sqlite3.connect("talk.db")
    talk.execute("PRAGMA journal_mode=WAL")
    talk.execute("CREATE TABLE said (n)")
    for n in range(6):
        with talk:
            talk.execute("INSERT INTO said VALUES (?)", [use(n)])
        if n == 3 and not Path(killed).exists():
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return [n for n, in sqlite3.connect("talk.db").execute("SELECT n FROM said")]
"""


def test_a_database_that_the_code_has_open_is_not_written_over_by_uses_that_are_replayed(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a function that writes to a database between uses of a tool, as memories and sessions of agents do
    (file := tmp_path / "agent.py").write_text(DATABASE)
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # When its process is killed after the fourth
    result = client.submit(f"{file}:main()", {"killed": str(tmp_path / "killed")}).wait(150)
    # Then it finds there what its second process wrote
    assert json.loads(result.outputs["main"]) == [*range(6)], result.error
    assert result.recoveries == 1


LINKED = """
import os, signal
from pathlib import Path

from langchain.tools import tool


@tool
def fact(topic: str) -> str:
    'Says a fact.'
    return topic


def main(killed):
    ids = ["one", "two"]
    if Path(killed).exists():
        ids.reverse()
    said = [fact.invoke({"type": "tool_call", "name": "fact", "args": {"topic": "owls"}, "id": one}) for one in ids]
    if not Path(killed).exists():
        Path(killed).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [one.tool_call_id for one in said]
"""


def test_of_equal_uses_side_by_side_each_result_is_linked_to_its_own_call(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given two uses of a tool of LangChain with the same arguments, which come in another order after a kill
    (file := tmp_path / "agent.py").write_text(LINKED)
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(f"{file}:main()", {"killed": str(tmp_path / "killed")}).wait(150)
    # Then no result has the id of the other's call: a provider refuses that
    assert json.loads(result.outputs["main"]) == ["two", "one"], result.error
    assert (result.recoveries, result.ledger["tools"]["paid"]) == (1, 2)


def test_a_script_that_its_package_imports_runs_once(
    models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a script in a package that imports it
    (package := tmp_path / "digging").mkdir()
    file = written(package, "pydantic-ai", models)
    file.write_text(f"{file.read_text()}\nagent.run_sync('Dig.')\nif __name__ == '__main__':\n    print('end')\n")
    (package / "__init__.py").write_text("from . import agent\n")
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(file).wait(150)
    assert (result.outputs, models.paid) == ({"main": "end"}, 4), result.error


@pytest.mark.parametrize("runs_itself", [False, True])
def test_structured_output_of_a_class_beside_the_file_is_json(
    runs_itself: bool, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent whose output is a dataclass of another module, with a model in it
    (tmp_path / "trips.py").write_text(
        "from dataclasses import dataclass\nfrom datetime import date\nfrom pydantic import BaseModel\n"
        "class Stop(BaseModel):\n    at: date\n@dataclass\nclass Trip:\n    to: str\n    stops: list[Stop]\n"
    )
    trip = {"to": "Rome", "stops": [{"at": "2026-11-24"}]}
    with ModelServer(lambda _: Answer(calls=[Call("final_result", trip)])) as models:
        file = written(tmp_path, "pydantic-ai", models)
        code = file.read_text().replace("Agent(model,", "Agent(model, output_type=trips.Trip,")
        code = code.replace("import os,", "import trips\nimport os,")
        file.write_text(code + ("\ndef main():\n    return agent.run_sync('Dig.').output\n" if runs_itself else ""))
        fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is run
        target, inputs = (f"{file}:main()", {}) if runs_itself else (file, {"prompt": "Dig."})
        result = client.submit(target, inputs).wait(150)
    # Then its output is JSON
    assert result.error is None
    assert [json.loads(text) for text in result.outputs.values()] == [trip]


def test_an_agent_needs_a_prompt_and_two_of_a_file_a_name(models: ModelServer, client: Client, tmp_path: Path) -> None:
    file = written(tmp_path, "pydantic-ai", models)
    with pytest.raises(Exception, match=r"the agent needs the input 'prompt': give it with --input prompt="):
        client.submit(file)
    file.write_text(file.read_text() + "\nother = Agent(model, name='other')\n")
    with pytest.raises(BadCrew, match=r"agent\.py has 2 agents: agent, other; name one, as in agent\.py:agent"):
        client.submit(file, {"prompt": "Dig."})


def test_what_a_library_reads_from_the_terminal_a_person_is_asked(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a program whose questions are asked by libraries: by a prompt of their own, by input(), by a line of stdin
    (file := tmp_path / "script.py").write_text(
        "import sys\nfrom asyncio import run, to_thread\nfrom rich.prompt import Prompt\n"
        "if __name__ == '__main__':\n"
        "    print('It wants to pay.')\n"
        "    said = [Prompt.ask('Go on?', choices=['y', 'n'])]\n"
        "    print('And then: ', end='')\n"
        "    said.append(run(to_thread(sys.stdin.readline)).strip())\n"
        "    print(said)\n"
    )
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    result, asked = client.submit(f"{file}:__main__()").wait(150), []
    # When a person answers, first with what is no choice, and the process is killed each time
    for answer in ("perhaps", "y", "done"):
        assert result.status == "waiting", result.error
        asked += [one.message for one in result.asked]
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
        result = client.answer(result.run_id, text=answer).wait(150)
    # Then each question was the line that was printed for it, and what was answered is there
    assert result.error is None
    assert asked == ["Go on? [y/n]:", "Go on? [y/n]:", "And then:"]
    assert str(result.result).splitlines()[-1].endswith("['y', 'done']")
