"""What `docs/crewai.md` says can be typed is typed, with CrewAI, and what comes is what it shows."""

import functools
import importlib.util
import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "crewai.md"
PORT = "8801"


def _reader_of_pages() -> Any:
    spec = importlib.util.spec_from_file_location("reader_of_pages", REPOSITORY / "tests" / "docs" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


READER = _reader_of_pages()
SECTIONS = READER.sections(PAGE)


CREWAI = "import sys; from crewai_cli.cli import crewai; sys.argv[0] = 'crewai'; crewai()"


class Reader(READER.Reader):
    """One who has CrewAI, and its commands ask nothing."""

    commands = {**READER.Reader.commands, "crewai": f'-c "{CREWAI}"'}

    def _environment(self) -> dict[str, str]:
        quiet = {"CREWAI_DMN": "1", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
        return {**super()._environment(), **quiet, "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.soak  # each command imports CrewAI
@pytest.mark.timeout(480)
@pytest.mark.parametrize("section", [pytest.param(section, id=section.part) for section in SECTIONS])
def test_what_the_page_says(
    section: Any, crewai_python: str, tmp_path: Path, processes_are_forked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    folder = tmp_path / "here"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    reader = type("WithCrewAI", (Reader,), {"python": crewai_python})(PAGE, folder, {PORT: port}, processes_are_forked)
    reader._terminal.type = functools.partial(reader._terminal.type, within=240.0)  # CrewAI's import is long
    try:
        for block in section.blocks:
            reader.follow(block)
    finally:
        reader.close()


REFUSED = """
import contextlib, json, sys
from runner.core.errors import UsageError
from runner.client.submission import prepare, run_fields

for file, inputs, models in json.load(sys.stdin):
    try:
        found = prepare(file, alone=True)
        with contextlib.closing(found.reader):
            run_fields(found, inputs, "runner", keep=60.0, models=models)
        print("[0]")
    except UsageError as error:
        print(json.dumps([str(error)]))
"""
FLOWS = "from crewai.flow import Flow, persist, start\n"
TWO = """from crewai import Agent, Crew, Task
agent = Agent(role="r", goal="g", backstory="b")
facts, text = (Task(name=name, description="d", expected_output="x", agent=agent) for name in ("facts", "text"))
"""
NOT_SUPPORTED: dict[str, tuple[str, dict[str, str], str]] = {
    "a conversation": (
        FLOWS + "class Chat(Flow):\n    conversational = True\n    @start()\n    def begin(self): ...\n", {}, ""
    ),
    "arguments": (
        FLOWS + "class Report(Flow):\n    def __init__(self, on):\n        super().__init__()\n"
        "    @start()\n    def begin(self): ...\n", {}, ""
    ),
    "context": (TWO + "text.context = [facts]\ncrew = Crew(agents=[agent], tasks=[text])\n", {}, ""),
    "persist": (FLOWS + "@persist()\nclass Kept(Flow):\n    @start()\n    def begin(self): ...\n", {"id": "x"}, ""),
    "state": (
        FLOWS + "class Client: ...\nclass Holds(Flow):\n    initial_state = {'client': Client()}\n"
        "    @start()\n    def begin(self): ...\n", {}, ""
    ),
    "demo": (TWO + "crew = Crew(agents=[agent], tasks=[facts])\n", {}, "demo"),
}  # fmt: skip


def test_what_is_not_supported_says_what_the_page_says(run_crewai: Callable[..., Any], tmp_path: Path) -> None:
    asked = []
    for name, (code, inputs, models) in NOT_SUPPORTED.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "main.py").write_text(code)
        asked.append((str(folder / "main.py"), inputs, models))
    for name, definition in (("written", "flow.yaml"), ("named", "team.jsonc")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / definition).touch()
        (folder / "pyproject.toml").write_text(f"[tool.crewai]\ndefinition = '{definition}'\n")
        asked.append((str(folder), {}, ""))
    told = run_crewai("-c", REFUSED, input=json.dumps(asked))
    said = [json.loads(line)[0] for line in told.stdout.splitlines() if line.startswith("[")]
    assert len(said) == len(asked)
    rows = re.findall(r"(?m)^\| .* \| `([^`]+)` \|$", PAGE.read_text("utf-8"))
    patterns = [re.escape(row).replace(re.escape("(...)"), r"\(.*\)") for row in rows]
    left = [one for one in said if not any(re.search(pattern, one.replace("`", "")) for pattern in patterns)]
    assert left == []


def test_there_is_something_to_type() -> None:
    assert [section.part for section in SECTIONS] == ["Five minutes", "A project"]
