"""examples/newsroom: with the demo, and against a server that speaks OpenAI's protocol. (Offline:
tests/integration/modelserver.)
"""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Call, ModelServer, Rule

CREW = Path(__file__).parents[2] / "examples" / "newsroom" / "crew.py"

SCRIPT = [
    Rule(
        "You are researcher",
        [Call("list_sources"), Call("search_sources", {"words": "silent"}), Call("read_source", {"name": "food.md"})],
        Call("read_source", {"name": "nowhere.md"}),
        "They fly silently (flight.md).",
    ),
    Rule("You are writer", "# Owls\nOwls fly silently and far."),
    Rule("You are editor", "# Owls\nOwls fly silently."),
]


def test_any_server_that_speaks_openais_protocol(fleet: Any, tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        fleet.start("--concurrency", "1", **server.environment)
        said = fleet.runner("submit", str(CREW), "--json", cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        found = json.loads(said.stdout)
        assert found["result"] == "# Owls\nOwls fly silently."
        assert (tmp_path / "article.md").read_text().strip() == found["result"]
        assert found["ledger"]["paid"] == server.paid == 5
        listed, lines, page = server.log[1].results
        assert listed.splitlines()[0] == "barns.md: Where a barn owl lives"
        assert "flight.md: Together they make its flight almost silent" in lines
        assert page.startswith("# What a barn owl eats")
        assert "barns.md" in server.log[2].last  # it was told which there are
        assert "They fly silently (flight.md)." in server.log[3].text
        assert "models" not in found


@pytest.mark.timeout(120)
def test_the_demo(fleet: Any, tmp_path: Path) -> None:
    fleet.start("--concurrency", "1", RUNNER_DEMO_DELAY="0")
    said = fleet.runner("submit", str(CREW), "--demo", "--json", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["outputs"]["notes"].startswith("[DEMO]")
    assert "Where a barn owl lives" in found["outputs"]["notes"]
    assert found["ledger"]["paid"] == 6
