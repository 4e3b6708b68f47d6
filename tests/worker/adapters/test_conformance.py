"""CrewAI's adapters pass the suite that adapters of others are given."""

import os
import subprocess
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "conformance.py"


@pytest.mark.soak
def test_they_pass_the_published_suite(crewai_python: str, tmp_path: Path) -> None:
    site = str(Path(pytest.__file__).parents[1])  # after that interpreter's own, which has no pytest
    run = f"import sys; sys.path.append({site!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "--noconftest", "--import-mode=importlib", "-q", "-rs"]
    environment = {**os.environ, "HOME": str(tmp_path), "OPENAI_API_KEY": "none", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [crewai_python, "-c", run, *options, f"--basetemp={tmp_path / 'temporary'}", str(SUITE)],
        capture_output=True, text=True, check=False, env={**environment, "PYTHONPATH": str(SUITE.parents[3])},
    )  # fmt: skip
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert last[0].startswith("6 passed, 2 skipped"), done.stdout
