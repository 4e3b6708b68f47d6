"""Crew files are read in processes of their own: nothing of theirs is in who submits, from however many threads."""

import os
import signal
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.bundles.target import parse_target
from runner.client.reading import process
from runner.client.reading.crew import Request
from runner.client.reading.process import Reader
from runner.client.submission import prepare
from runner.core.errors import BadCrew, BadInput
from runner.testing import eventually

READS_ITS_OWN = """
    import json, os, sys
    from pathlib import Path
    from time import sleep
    import helper
    from runner import Crew, Task

    os.environ["LEFT_BY"] = "a crew file"
    sys.path.insert(0, "/left/by/a/crew/file")
    for _ in range(20):  # the others are read meanwhile
        word = Path("knowledge/a.txt").read_text()
        sleep(0.005)
    crew = Crew(name=f"{word} {helper.WORD} {Path.cwd().name}", tasks=[Task(run=str)])
"""

PLAIN = "from runner import Crew, Task\ncrew = Crew(tasks=[Task(run=str)])\n"

THOSE = " (relative paths are those of FOLDER)"

FLOW = """
    import os
    from pydantic import BaseModel
    from runner.flows import Flow, start

    class State(BaseModel):
        n: int = 0
        process: int = os.getpid()

    class Counts(Flow[State]):
        @start()
        def a(self): ...
"""


@pytest.fixture
def crew(tmp_path):
    def write(code: str, name: str = "one") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "crew.py").write_text(textwrap.dedent(code))
        return folder / "crew.py"

    return write


def _of_this_process():
    return (
        Path.cwd(), list(sys.path), list(sys.meta_path), dict(os.environ),
        {name for name in sys.modules if not name.startswith("runner.")},
    )  # fmt: skip


def test_forty_crews_from_eight_threads_each_find_their_own_files(crew, monkeypatch, tmp_path):
    names = [f"crew{n}" for n in range(40)]
    for name in names:
        file = crew(READS_ITS_OWN, name)
        (file.parent / "knowledge").mkdir()
        (file.parent / "knowledge/a.txt").write_text(name)
        (file.parent / "helper.py").write_text(f"WORD = {name!r}\n")
    monkeypatch.chdir(tmp_path)
    prepare("crew0/crew.py")  # what it takes to prepare one is imported
    before = _of_this_process()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: prepare(f"{name}/crew.py").plan.crew, names))
    assert found == [f"{name} {name} {name}" for name in names]
    assert _of_this_process() == before


def test_a_crew_file_sees_the_environment_and_the_terminal_of_who_submits(crew, monkeypatch, capfd):
    file = crew(
        """
        import os, sys
        from runner import Crew, Task
        print("read with", os.environ["OF_NOW"])
        print(sys.argv, file=sys.stderr)
        crew = Crew(tasks=[Task(run=str)])
        """
    )
    for word in ("one", "two"):
        monkeypatch.setenv("OF_NOW", word)
        prepare(str(file))
        assert capfd.readouterr() == (f"read with {word}\n", f"{[str(file)]}\n")


def test_a_changed_file_is_read_anew(crew):
    file = crew("from runner import Crew, Task\ncrew = Crew(name='before', tasks=[Task(run=str)])\n")
    assert prepare(str(file)).plan.crew == "before"
    file.write_text(file.read_text().replace("before", "after"))
    assert prepare(str(file)).plan.crew == "after"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("os._exit(9)", "crew.py: the crew file ended the process that reads it (exit 9)"),
        ("sys.exit(3)", "crew.py:2: the file exits the process when it is imported (exit 3)"),
        ("raise KeyboardInterrupt", "crew.py:2: the file raises KeyboardInterrupt when it is imported"),
        ("os.kill(os.getpid(), 9)", "crew.py: the process that read it was killed (SIGKILL)"),
        ("os.kill(os.getpid(), 11)", "crew.py: the process that read it was killed (SIGSEGV)"),
        ("os.closerange(3, 999); crew = 1", "crew.py: the crew file ended the process that reads it (exit 1)"),
        (
            "open('data/x.csv')",
            "crew.py:2: FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'" + THOSE,
        ),
    ],
)
def test_what_ends_the_process_is_said(crew, line, said):
    file = crew(f"import os, sys\n{line}\n")
    with pytest.raises(BadCrew) as refused:
        prepare(str(file))
    assert str(refused.value) == said.replace("FOLDER", str(file.parent))


def test_threads_and_exit_handlers_of_a_crew_file_hold_nobody_up(crew):
    file = crew(
        """
        import atexit, threading, time
        from runner import Crew, Task
        threading.Thread(target=time.sleep, args=(1000,)).start()
        atexit.register(time.sleep, 1000)
        crew = Crew(tasks=[Task(run=str)])
        """
    )
    assert prepare(str(file)).plan.total == 1


def test_a_file_that_never_ends_goes_with_who_waits_for_it(crew, tmp_path):
    file = crew(f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()) + '.')\nwhile True: pass\n")
    reader = Reader(Request.of(parse_target(str(file)), {}))
    pid = int(eventually(lambda: _written(tmp_path / "pid")))
    reader.close()
    eventually(lambda: not _lives(pid))


def _written(file):
    text = file.read_text() if file.exists() else ""
    return text.removesuffix(".") if text.endswith(".") else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_flow_is_prepared_once_and_submitted_often(crew):
    flow = prepare(str(crew(FLOW)))
    begun = [flow.reader.initial_state({"n": n}) for n in range(3)]
    assert [one["n"] for one in begun] == [0, 1, 2]
    pids = {one["process"] for one in begun}
    assert len(pids) == 1
    with pytest.raises(BadInput, match="n"):
        flow.reader.initial_state({"n": "many"})
    os.kill(pids.pop(), signal.SIGKILL)
    assert flow.reader.initial_state({"n": 3})["n"] == 3
    last = flow.reader.initial_state({"n": 4})["process"]
    del flow
    eventually(lambda: not _lives(last))


def test_it_goes_on_after_the_process_that_forks_was_killed(crew):
    file = str(crew(PLAIN))
    prepare(file)
    os.kill(process._shared._process.pid, signal.SIGKILL)
    process._shared._process.wait()
    assert prepare(file).plan.total == 1


def test_forks_of_the_submitter_have_their_own(crew):
    file = str(crew(PLAIN))
    flow = prepare(str(crew(FLOW, "flow")))
    pid = os.fork()
    if pid == 0:
        good = prepare(file).plan.total == 1 and flow.reader.initial_state({"n": 1})["n"] == 1
        process._shared.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (prepare(file).plan.total, flow.reader.initial_state({"n": 2})["n"]) == (1, 2)


def test_inputs_that_are_not_json_are_refused(crew):
    file = str(crew(PLAIN))
    with pytest.raises(BadInput, match="the inputs are not JSON: Object of type PosixPath is not JSON serializable"):
        prepare(file, inputs={"x": Path()})


def test_a_thread_waits_only_for_its_own(crew, tmp_path):
    slow = crew(f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n" + PLAIN, "a")
    quick = crew(PLAIN, "b")
    waiting = threading.Thread(target=prepare, args=(str(slow),))
    waiting.start()
    assert prepare(str(quick)).plan.total == 1
    assert waiting.is_alive()
    (tmp_path / "go").touch()
    waiting.join(30)
    assert not waiting.is_alive()
