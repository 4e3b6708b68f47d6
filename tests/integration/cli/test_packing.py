"""`submit` says what it does not pack, and `--dry-run` what it would."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from runner.testing import ModelServer

ASKS = """
    import httpx
    from runner import Crew, Task

    answer = httpx.post("{url}/embeddings", json={{"model": "e", "input": "owls"}}).json()
    crew = Crew(tasks=[Task(name="look", run=lambda ctx: str(answer["model"]))])
"""

CREW = """
    from pathlib import Path
    from runner import Crew, Task

    def look(ctx):
        here = Path(__file__).parent
        return ",".join(sorted(path.name for path in here.iterdir() if path.is_file()))

    crew = Crew(tasks=[Task(name="look", run=look)])
"""


def test_what_is_not_packed_is_said_and_not_there(cli: Any, fleet: Any, write_crew: Any, redis: Any) -> None:
    crew: Path = write_crew(CREW, **{"_env": "WORD=x"}, notes__txt="n", secrets__yaml="s", prod__env="e")
    (crew.parent / "_env").rename(crew.parent / ".env")
    (crew.parent / "shadow.txt").symlink_to("/etc/passwd")
    line = (
        "not packed: .env, prod.env, secrets.yaml (may hold secrets), shadow.txt (links out of the folder); "
        "a line !NAME in .runnerignore includes one, --dry-run lists all"
    )
    # A dry run stores nothing, and needs no store
    said = cli("submit", crew, "--dry-run", RUNNER_REDIS_URL="redis://127.0.0.1:1/0")
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        f"crew.py  {crew.stat().st_size} bytes",
        "notes.txt  1 bytes",
        "not packed: .env  may hold secrets",
        "not packed: prod.env  may hold secrets",
        "not packed: secrets.yaml  may hold secrets",
        "not packed: shadow.txt  links out of the folder",
        f"crew: 2 files, {crew.stat().st_size + 1} bytes; nothing was stored",
    ]
    found = json.loads(cli("submit", crew, "--dry-run", "--json").out)
    assert [one["name"] for one in found["files"]] == ["crew.py", "notes.txt"]
    assert found["left_out"][-1] == {"name": "shadow.txt", "why": "link"}
    assert list(redis.scan_iter("*")) == []
    # A run says so in a line, and nothing of it on stdout
    fleet.start("--concurrency", "1")
    said = cli("submit", crew, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["result"] == "crew.py,notes.txt"
    assert said.err.splitlines().count(line) == 1
    # and what the ignore file names is there
    (crew.parent / ".runnerignore").write_text("!secrets.yaml\n!shadow.txt\n")
    said = cli("submit", crew, "--json")
    assert json.loads(said.out)["result"] == "crew.py,notes.txt,secrets.yaml,shadow.txt"
    assert "not packed: .env, prod.env (may hold secrets);" in said.err
    # Where all is packed nothing is said
    for name in (".env", "prod.env"):
        (crew.parent / name).unlink()
    assert "not packed" not in cli("submit", crew, "--json").err


def test_a_file_is_read_by_the_inputs_of_the_first_line(cli: Any, write_crew: Any) -> None:
    crew: Path = write_crew("""
        from runner import Crew, Task

        class Report:
            def __init__(self, topic):
                self.topic = topic

            def crew(self):
                return Crew(tasks=[Task(name="write", run=lambda ctx: self.topic)])
    """)
    many = crew.parent / "many.jsonl"
    many.write_text('{"topic": "owls"}\n{"topic": "bats"}\n')
    said = cli("submit", f"{crew}:Report", "--each", many, "--dry-run")
    assert said.code == 0, said.err


def test_what_the_command_reads_and_writes_is_not_packed(cli: Any, write_crew: Any) -> None:
    # A file of inputs may be larger than any bundle, and one of results is another each time
    crew: Path = write_crew(CREW)
    many = crew.parent / "many.jsonl"
    many.write_text('{"n": 1}\n' * 200)
    found = json.loads(cli("submit", crew, "--each", many, "--bundle-limit", "1000", "--dry-run", "--json").out)
    assert [one["name"] for one in found["files"]] == ["crew.py"]
    assert found["left_out"] == [{"name": "many.jsonl", "why": "own"}]
    # A file that the ignore file brings back by name is there
    (crew.parent / ".runnerignore").write_text("!many.jsonl\n")
    found = json.loads(cli("submit", crew, "--each", many, "--dry-run", "--json").out)
    assert [one["name"] for one in found["files"]] == ["crew.py", "many.jsonl"]
    (crew.parent / ".runnerignore").unlink()
    # and what the shell opens for the command's output is not
    with (crew.parent / "results.jsonl").open("w") as results, (crew.parent / "log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "runner", "submit", crew, "--dry-run"], stdout=results, stderr=log, check=True
        )
    said = (crew.parent / "results.jsonl").read_text().splitlines()
    assert "not packed: results.jsonl  read or written by this command" in said
    assert "not packed: log  read or written by this command" in said
    assert any(line.startswith("many.jsonl  ") for line in said)


def test_a_dry_run_needs_no_inputs(cli: Any, write_crew: Any) -> None:
    crew = write_crew("""
        from runner import Crew, Task
        crew = Crew(tasks=[Task(name="a", run=lambda ctx: ctx.inputs["topic"], description="About {topic}")])
    """)
    assert cli("submit", crew, "--dry-run").code == 0


def test_what_a_file_asks_at_its_import_is_said_and_a_dry_run_asks_nothing(
    cli: Any, fleet: Any, write_crew: Any
) -> None:
    with ModelServer("unused") as models:
        crew: Path = write_crew(ASKS.format(url=models.url))
        said = cli("submit", crew, "--dry-run")
        assert (said.code, models.requests) == (0, 0)
        assert said.err.splitlines()[-1] == "crew.py asks a model while it is imported: it was not asked"
        assert said.out.splitlines() == [
            f"crew.py  {crew.stat().st_size} bytes",
            f"crew.py: 1 files, {crew.stat().st_size} bytes; nothing was stored",
        ]
        fleet.start("--concurrency", "1")
        said = cli("submit", crew, "--json")
        assert (json.loads(said.out)["result"], models.requests) == ("e", 1)
        assert "crew.py made 1 call while it was imported here: the answers go with its runs" in said.err.splitlines()
