"""The examples of packages that add to this one, each way there is, installed and used by real commands."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.testing import Fleet

EXAMPLES = Path(__file__).parents[2] / "examples/plugins"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """The environment of a process that has them."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(EXAMPLES, folder / "source")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--skip-dependency-check"]
    for example in (folder / "source").iterdir():
        subprocess.run([*command, "--outdir", folder, example], check=True, capture_output=True)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:  # there may be no pip here
            archive.extractall(folder / "site")
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "XDG_STATE_HOME": str(folder)}


def ran(installed, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=installed, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("name", [path.name for path in EXAMPLES.iterdir()])
def test_it_is_short(name):
    files = [file for file in (EXAMPLES / name).rglob("*") if file.suffix in (".py", ".toml")]
    assert 0 < sum(len(file.read_text().splitlines()) for file in files) < 200


def test_they_pass_the_suites_as_the_page_shows(installed, tmp_path):
    page = (EXAMPLES.parents[1] / "docs/plugins.md").read_text()
    (shown,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_shown.py").write_text(shown)
    command = (sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "test_shown.py")
    done = ran(installed, *command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"::{suite}::" in done.stdout for suite in ("TestShell", "TestMeter", "TestOracle", "TestBusy"))
    assert "skipped" not in done.stdout


def test_its_crews_run_on_a_worker(installed, tmp_path, server):
    (tmp_path / "crew.py").write_text(
        "from crew_runner_shell import ShellCrew\n\ncrew = ShellCrew(first='echo one', then='echo two >&1')\n"
    )
    with Fleet(server.url) as fleet:
        fleet.settings = {"PYTHONPATH": installed["PYTHONPATH"]}
        fleet.start("--concurrency", "1")
        named = {**installed, "RUNNER_REDIS_URL": server.url}
        done = ran(named, sys.executable, "-m", "runner", "submit", "crew.py", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"first": "one", "then": "two"}
    counted = ran(installed, sys.executable, "-m", "runner", "busy", "--redis-url", server.url, cwd=tmp_path)
    assert (counted.returncode, counted.stdout) == (0, "0\n"), counted.stderr
    assert "busy" in ran(installed, sys.executable, "-m", "runner", "--help", cwd=tmp_path).stdout


def test_its_provider_keeps_checkpoints(installed, tmp_path):
    code = """
from runner import CheckpointConfig, Crew, Task

config = CheckpointConfig(location="scratch://mine", on_events=["task_completed"])
Crew(tasks=[Task(name="a", run=lambda ctx: "x")], checkpoint=config).kickoff()
"""
    done = ran({**installed, "TMPDIR": str(tmp_path)}, sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "scratch-checkpoints/mine").rglob("*.json"))) == 1


def test_a_crew_of_it_is_refused_where_it_is_not_installed(tmp_path):
    (tmp_path / "crew.py").write_text("from crew_runner_shell import ShellCrew\n\ncrew = ShellCrew(a='true')\n")
    done = ran(dict(os.environ), sys.executable, "-m", "runner", "submit", "crew.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "crew_runner_shell" in done.stderr


class Oracle(BaseHTTPRequestHandler):
    """A service that nobody but the parser knows. It keeps what it was asked."""

    asked: list[dict[str, str]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = json.dumps({"answer": "perhaps", "words": [5, 2]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


ASKING = """
import os, signal
from pathlib import Path
import httpx2
from runner import Crew, Task

def ask(ctx):
    words = httpx2.post(os.environ["ORACLE"] + "/v2/ask", json={"oracle": "delphi", "question": "why"}).json()["answer"]
    if not (mark := Path(os.environ["MARK"])).exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return words

crew = Crew(tasks=[Task(name="ask", run=ask)])
"""


@pytest.mark.soak
def test_a_parser_makes_the_calls_of_its_service_durable_and_an_observer_hears_of_them(installed, tmp_path, server):
    (tmp_path / "crew.py").write_text(ASKING)
    with ThreadingHTTPServer(("127.0.0.1", 0), Oracle) as service, Fleet(server.url) as fleet:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        lines = tmp_path / "meter.jsonl"
        fleet.settings = {
            "PYTHONPATH": installed["PYTHONPATH"],
            "ORACLE": f"http://127.0.0.1:{service.server_port}",
            "MARK": str(tmp_path / "mark"),
            "METER_FILE": str(lines),
        }
        fleet.start("--concurrency", "1")
        named = {**installed, "RUNNER_REDIS_URL": server.url}
        done = ran(named, sys.executable, "-m", "runner", "submit", "crew.py", "--json", cwd=tmp_path)
        service.shutdown()
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["result"], result["recoveries"]) == ("perhaps", 1)
    assert len(Oracle.asked) == 1, "it was recorded when its process was killed"
    [row] = result["ledger"]["by"]
    assert (row["model"], row["calls"], row["prompt_tokens"], row["completion_tokens"]) == ("oracle/delphi", 1, 5, 2)
    step, ended = map(json.loads, lines.read_text().splitlines())
    assert (step["kind"], step["model"], step["tokens"], step["attempt"]) == ("model", "oracle/delphi", 7, 1)
    assert (ended["ended"], ended["attempt"], ended["run"]) == ("commit", 2, result["run_id"])
