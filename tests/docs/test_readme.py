"""README's crew is what it seems: it runs as it stands, once there is a `fetch`."""

import re
from pathlib import Path

from runner.bundles.loader import load_target
from runner.bundles.target import parse_target

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")


def test_its_crew_runs(tmp_path: Path) -> None:
    [shown] = re.findall(r"(?ms)^```python\n# crew\.py\n(.*?)^```$", README)
    crew = tmp_path / "crew.py"
    crew.write_text(f"{shown}\n\ndef fetch(url):\n    return url.upper()\n")
    result = load_target(parse_target(str(crew))).crew.kickoff({"topic": "owls", "urls": "https://a https://b"})
    assert result.raw == "2 pages about owls"
    assert result.tasks_output[0].value == ["HTTPS://A", "HTTPS://B"]
