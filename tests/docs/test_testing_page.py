"""The tests that docs/testing.md shows for a crew of one's own are run, on a crew with one agent."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.testing import ModelServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
CREW = """
from runner import Agent, Crew, Task

agent = Agent(role="writer", goal="write", backstory="", llm="gpt-4o-mini")
crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write.", expected_output="text", agent=agent)])
"""


TWO_AGENTS = """
from runner import Agent, Crew, Task, tool

@tool
def search(q: str) -> str:
    '''Search.'''
    return "three pages"

researcher = Agent(role="researcher", goal="know", backstory="", llm="gpt-4o-mini", tools=[search])
writer = Agent(role="writer", goal="write", backstory="", llm="gpt-4o-mini")
crew = Crew(agents=[researcher, writer], tasks=[
    Task(name="find", description="Find out.", expected_output="text", agent=researcher),
    Task(name="write", description="Write.", expected_output="text", agent=writer),
])
"""


FORKED = """
import sys
from pathlib import Path

sys.path.append({support!r})
from fork_server import ForkServer
from runner.testing import fleet

fleet.launch = ForkServer(Path({folder!r})).popen
"""


@pytest.fixture
def passes(sections_of, tmp_path, processes_are_forked):
    """Runs blocks of the page as one test file, beside a crew; its workers are forked where those of our tests are."""
    folder = Path(processes_are_forked.path(sys.executable, os.environ)).parent
    support = str(Path(__file__).resolve().parents[1] / "support")
    (tmp_path / "conftest.py").write_text(FORKED.format(support=support, folder=str(folder)))
    blocks = [block.text for section in sections_of(PAGE) for block in section.blocks if block.kind == "python"]

    def run(crew: str, *begin: str) -> None:
        (tmp_path / "crew.py").write_text(crew)
        shown = [next(block for block in blocks if block.startswith(how)) for how in begin]
        (tmp_path / "test_shown.py").write_text("\n".join(["from crew import crew", *shown]))
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shown.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"{len(begin)} passed" in ran.stdout

    return run


@pytest.mark.timeout(300)
def test_a_crew_and_a_kill(passes):
    passes(TWO_AGENTS, "from runner.testing import Answer, Call", "import os, signal")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_store_that_refuses(passes):
    passes(CREW, "# test_faults.py")


def test_the_model_server_takes_what_the_page_says():
    said = re.search(r"\| `ModelServer(\(.*?\))` \| is \|", PAGE.read_text("utf-8"))
    assert said
    taken = list(inspect.signature(ModelServer).parameters.values())
    assert said[1] == str(inspect.Signature([one.replace(annotation=one.empty) for one in taken])).replace("'", '"')
