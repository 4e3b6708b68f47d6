"""What a project of CrewAI reads and writes by relative paths, on a fleet of two machines as ``crewai run`` does it."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Call, ModelServer

SOURCE = """
    from pathlib import Path
    from crewai import Agent, Crew, LLM, Task
    from crewai.tools import tool

    STYLE = Path("src/shop/config/style.txt").read_text()
    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-none")

    @tool("notes")
    def notes(x: str) -> str:
        "Take notes."
        with open("data/notes.txt", "a") as out:
            out.write(f"owls {{x}};")
        return open("data/notes.txt").read()

    def late(output):
        held = Path({held!r})
        with held.open("a") as out:
            out.write("at it;")
        while len(held.read_text().split(";")) < 3:
            pass

    def told(output):
        names = ("data/notes.txt", "report.md", "src/shop/config/style.txt")
        found = {{name: Path(name).read_text() for name in names}}
        Path("found.txt").write_text(repr(found))
        Path(__file__).with_name("beside.txt").write_text(STYLE)

    agent = Agent(role="r", goal="g", backstory="b", llm=llm, tools=[notes])
    plain = Agent(role="p", goal="g", backstory="b", llm=llm)
    crew = Crew(agents=[agent, plain], tasks=[
        Task(name="first", description="Use the tool.", expected_output="x", agent=agent, output_file="report.md",
             callback=late if {held!r} else None),
        Task(name="second", description="Then.", expected_output="x", agent=plain, callback=told),
    ])
"""


def script(request: Any) -> Any:
    return Call("notes", {"x": "fly"}) if "Use the tool." in request.text and not request.results else "Done."


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(script) as server:
        yield server


def _project(folder: Path, models: ModelServer, held: str = "") -> Path:
    files = {
        "pyproject.toml": '[project]\nname = "shop"\n[tool.crewai]\ntype = "crew"\n',
        "src/shop/__init__.py": "",
        "src/shop/config/style.txt": "plain",
        "data/notes.txt": "start;",
        "src/shop/crew.py": textwrap.dedent(SOURCE.format(url=models.root + "/v1", held=held)),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


FOUND = "{'data/notes.txt': 'start;owls fly;', 'report.md': 'Done.', 'src/shop/config/style.txt': 'plain'}"


def test_a_project_reads_and_writes_its_own_files_on_a_fleet(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path
) -> None:
    project = _project(tmp_path / "shop", models)
    crewai_fleet.start("--concurrency", "1", wait=False, RUNNER_CACHE_DIR=str(tmp_path / "a"))
    crewai_fleet.start("--concurrency", "1", wait=False, RUNNER_CACHE_DIR=str(tmp_path / "b"))
    here = tmp_path / "here"
    here.mkdir()
    done = crewai_fleet.runner("submit", str(project), "--json", cwd=here, timeout=170)
    assert json.loads(done.stdout)["status"] == "completed", done.stderr
    # what is new or changed is given back where it was submitted, and the project itself is as it was
    found = {path.relative_to(here).as_posix(): path.read_text() for path in here.rglob("*") if path.is_file()}
    assert found == {
        "data/notes.txt": "start;owls fly;", "report.md": "Done.", "found.txt": FOUND, "src/shop/beside.txt": "plain",
    }  # fmt: skip
    assert (project / "data/notes.txt").read_text() == "start;"
    assert not (project / "found.txt").exists()


def test_a_tool_whose_worker_dies_wrote_its_file_once(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path, eventually: Any
) -> None:
    held = tmp_path / "held"
    project = _project(tmp_path / "shop", models, held=str(held))
    one = crewai_fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / "a"))
    run = crewai_fleet.runner("submit", str(project), "--detach", cwd=tmp_path, timeout=170).stdout.strip()
    eventually(held.exists, within=60, why="the first task is at its end")
    crewai_fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / "b"))
    one.kill_group()
    out = tmp_path / "out"
    done = crewai_fleet.runner("wait", run, "--json", cwd=tmp_path, timeout=170)
    assert json.loads(done.stdout)["status"] == "completed", done.stderr
    crewai_fleet.runner("files", run, "--out", str(out))
    assert (out / "data/notes.txt").read_text() == "start;owls fly;"
    assert (out / "found.txt").read_text() == FOUND
