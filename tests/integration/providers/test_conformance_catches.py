"""The published suite finds what is wrong: providers with one fault each fail the tests that are about it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = '''
import os, time, uuid
from pathlib import Path
import pytest
from runner.providers import JsonProvider
from runner.providers import json as files
from runner.testing import ProviderConformance

class Suite(ProviderConformance):
    @pytest.fixture
    def location(self, tmp_path):
        return str(tmp_path / "c")
    def tear(self, location):
        Path(location).write_text("{")

class RandomIds(JsonProvider):
    """As CrewAI makes them: in no order within a second."""
    def checkpoint(self, data, location, *, parent_id=None, branch="main"):
        path = Path(super().checkpoint(data, location, parent_id=parent_id, branch=branch))
        one = path.stem.partition("_")[0] + "_" + uuid.uuid4().hex[:8]
        path = path.rename(path.with_name(f"{one}_p-{parent_id or 'none'}.json"))
        os.utime(path, (0, 0))
        return str(path)

class KnowsNoLines(JsonProvider):
    def prune(self, location, max_keep, *, branch="main", head=None):
        return super().prune(location, max_keep, branch=branch)

class TakesAnything(JsonProvider):
    """The newest name, torn or not."""
    def latest(self, location, branch=None):
        found = self.checkpoints(location, branch)
        if not found:
            raise files.CheckpointFileNotFound("Checkpoint not found")
        return found[-1]

class KeepsOne(JsonProvider):
    """Never lets go of the last one."""
    def prune(self, location, max_keep, *, branch="main", head=None):
        return super().prune(location, max(1, max_keep), branch=branch, head=head)

class ForgetsParents(JsonProvider):
    def checkpoint(self, data, location, *, parent_id=None, branch="main"):
        return super().checkpoint(data, location, branch=branch)

class GoesAnywhere(JsonProvider):
    def checkpoint(self, data, location, *, parent_id=None, branch="main"):
        return super().checkpoint(data, location, parent_id=parent_id, branch=branch.strip("./").replace("../", ""))

class FailsLater(JsonProvider):
    """A disk that is full by then."""
    def checkpoint(self, data, location, *, parent_id=None, branch="main"):
        if '"i": 20' in data:
            raise OSError(28, "No space left on device")
        return super().checkpoint(data, location, parent_id=parent_id, branch=branch)

def of(kind):
    class One(Suite):
        @pytest.fixture
        def provider(self):
            return kind()
    return One

TestRandomIds, TestKnowsNoLines, TestTakesAnything = of(RandomIds), of(KnowsNoLines), of(TakesAnything)
TestKeepsOne, TestForgetsParents, TestGoesAnywhere = of(KeepsOne), of(ForgetsParents), of(GoesAnywhere)
TestFailsLater = of(FailsLater)
'''

CAUGHT_BY = {
    "TestRandomIds": "test_two_hundred_in_a_moment_keep_their_order",
    "TestKnowsNoLines": "test_two_lines_on_one_branch_do_not_prune_each_other",
    "TestTakesAnything": "test_the_newest_whole_one_is_used_and_a_torn_one_is_named",
    "TestKeepsOne": "test_pruning_to_nothing_leaves_nothing",
    "TestForgetsParents": "test_parents_and_branches_are_kept",
    "TestGoesAnywhere": "test_a_branch_name_that_leads_elsewhere_is_refused",
    "TestFailsLater": "test_readers_while_it_is_pruned",
}


@pytest.mark.soak
def test_each_fault_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_faults.py").write_text(FAULTS)
    named = " or ".join({"test_pruning_keeps_the_newest", *CAUGHT_BY.values()})
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfs", "--tb=no", "-p", "no:cacheprovider", "-k", named, "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    failed = set(re.findall(r"^FAILED test_faults\.py::(\w+)::(\w+)", found.stdout, re.MULTILINE))
    assert set(CAUGHT_BY.items()) <= failed, found.stdout + found.stderr
    assert "SKIPPED" not in found.stdout
    assert not {one for one in failed if one[1] == "test_pruning_keeps_the_newest"} - {
        ("TestRandomIds", "test_pruning_keeps_the_newest")
    }
