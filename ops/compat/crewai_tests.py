"""Do CrewAI's own tests of checkpoints, events and flows run against ours, with only their imports changed?

    python ops/compat/crewai_tests.py PATH/TO/crewAI/lib/crewai/tests [FILE ...]

Not one of the tests: theirs are not in this repository. In a copy of each file ``crewai`` becomes ``runner`` where a
module is named; nothing else is changed. It says what passed, and what did not and is not known to, and ends with 1
if there is such a one. Run it when CrewAI has a new release.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = (
    "test_checkpoint.py", "test_event_record.py", "events/test_event_context.py", "events/test_event_replay.py",
    "test_flow_persistence.py", "test_flow_resumability_regression.py", "utilities/events/test_crewai_event_bus.py",
    "utilities/events/test_shutdown.py", "utilities/events/test_thread_safety.py",
)  # fmt: skip

KNOWN = {
    "test_crew_kickoff_config_only_sets_checkpoint": "patches a private function of its telemetry",
    "test_restore_legacy_outputs_evaluates_expressions": "its expressions in flows of YAML, which are not here",
    "test_reset_runtime_state_clears_state_and_registry": "the bus keeps no private registry of ids",
}
"""What does not pass, and why."""

CONFTEST = '''
import asyncio, inspect
import pytest
from runner.events import event_bus, reset_last_event_id, restore_event_scope, set_event_context_config


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True


@pytest.fixture(autouse=True)
def afresh(tmp_path, monkeypatch):
    """As CrewAI's own conftest: nothing of the test before, and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    restore_event_scope(())
    set_event_context_config(None)
    reset_last_event_id()
    event_bus.enable_recording()  # theirs is always on


def pytest_configure(config):
    for mark in ("asyncio", "vcr", "timeout"):
        config.addinivalue_line("markers", mark)
'''


def ours(text: str) -> str:
    """A test of theirs with our imports."""
    text = re.sub(r"\bcrewai_core\.", "runner.", text)
    text = re.sub(r"\bcrewai\.(?=[a-z_])", "runner.", text)
    return re.sub(r"\b(from|import) crewai\b", r"\1 runner", text)


def main(tests: Path, files: tuple[str, ...]) -> int:
    unknown = []
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(CONFTEST)
        for file in files:
            copy = folder / Path(file).name
            copy.write_text(ours((tests / file).read_text()))
            command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", copy.name]
            said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
            print(f"{file}: {said.rstrip().splitlines()[-1]}", flush=True)
            for line in re.findall(r"^(?:FAILED|ERROR) .*", said, re.MULTILINE):
                test = line.partition(" - ")[0].rpartition("::")[2]
                print(f"    {test}: {KNOWN.get(test, 'NOT KNOWN ' + line)}")
                unknown += [] if test in KNOWN else [test]
    return bool(unknown)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit((__doc__ or "").strip())
    sys.exit(main(Path(sys.argv[1]), tuple(sys.argv[2:]) or FILES))
