"""The tests that docs/testing.md shows for a crew of one's own are run, on a crew with one agent."""

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
CREW = """
from runner import Agent, Crew, Task

agent = Agent(role="writer", goal="write", backstory="", llm="gpt-4o-mini")
crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write.", expected_output="text", agent=agent)])
"""


@pytest.mark.timeout(300)
def test_a_store_that_refuses(sections_of, tmp_path):
    blocks = [block for section in sections_of(PAGE) for block in section.blocks]
    shown = next(block.text for block in blocks if block.text.startswith("# test_faults.py\n"))
    (tmp_path / "crew.py").write_text(CREW)
    (tmp_path / "test_faults.py").write_text(shown)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_faults.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
