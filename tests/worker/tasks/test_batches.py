"""``runner submit --each`` with real workers: lines in, lines out, whatever is killed in between."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.providers.redis import keys
from runner.testing import eventually

pytestmark = pytest.mark.timeout(120)

CREW = """
    def run(ctx):
        n = ctx.inputs["n"]
        if n == 13 and not os.path.exists({fixed!r}):
            raise ValueError("unlucky")
        return str(ctx.step("work", work, "x", n, 0)["i"])
    crew = Crew(tasks=[Task(name="one", run=run)])
"""


@pytest.fixture
def crew(crew_of: Any, tmp_path: Path) -> Path:
    """Each run leaves one line; that of 13 fails until ``fixed`` is there."""
    path: Path = crew_of(CREW.replace("{fixed!r}", repr(str(tmp_path / "fixed"))))
    (tmp_path / "inputs.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(1, 41)))
    return path


def test_a_killed_submitter_s_batch_goes_on_and_no_input_is_done_twice(
    fleet: Any, crew: Path, tmp_path: Path, redis: Redis, trace: Any
) -> None:
    command = ("submit", str(crew), "--each", str(tmp_path / "inputs.jsonl"), "--at-once", "4")
    # Given a submitter that is killed while four of its runs wait for a worker
    first = fleet.popen(*command)
    eventually(lambda: redis.zcard(keys.key("runs_key", home=keys.home())) == 4, why="four runs are submitted")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    # When the same is submitted again, with a worker there
    fleet.start("--concurrency", "2")
    again = fleet.popen(*command)
    out, err = again.communicate(timeout=60)
    # Then each input was done once, and its result is a line
    lines = {one["line"]: one for one in map(json.loads, out.splitlines())}
    assert again.returncode == 1, err
    assert lines.keys() == set(range(1, 41))
    assert {line["status"] for n, line in lines.items() if n != 13} == {"completed"}
    assert [line["result"] for _, line in sorted(lines.items()) if line["result"]] == [
        str(n) for n in range(1, 41) if n != 13
    ]
    assert "ValueError: unlucky" in lines[13]["error"]
    assert sorted(trace.lines()) == sorted(f"step x {n}" for n in range(1, 41) if n != 13)
    assert redis.zcard(keys.key("runs_key", home=keys.home())) == 40
    assert "40 of 40 submitted, 39 done, 1 failed" in err
    # And the batch is known by its id: whoever waits for it gets the same
    (batch,) = {word for word in err.split() if word.startswith("b-") and not word.endswith(":")}
    waited = fleet.popen("wait", batch)
    said, err = waited.communicate(timeout=60)
    assert waited.returncode == 1, err
    assert {one["line"]: one for one in map(json.loads, said.splitlines())} == lines
    found = json.loads(told(fleet, "show", batch, "--json"))
    assert (found["status"], found["total"], found["submitted"]) == ("failed", 40, 40)
    assert (found["runs"]["completed"], found["runs"]["failed"], found["ledger"]["paid"]) == (39, 1, 39)
    assert [one["line"] for one in found["listed"]] == [13]
    shown = told(fleet, "show", batch)
    assert "40 of 40 submitted" in shown
    assert "ValueError: unlucky" in shown
    listed = json.loads(told(fleet, "runs", "--batch", batch, "--limit", "2", "--json"))
    assert [(one["line"], one["run_id"]) for one in listed] == [(n, lines[n]["run_id"]) for n in (40, 39)]
    # And what failed is resumed by it
    (tmp_path / "fixed").touch()
    resumed = fleet.popen("resume", batch)
    out, err = resumed.communicate(timeout=60)
    assert (resumed.returncode, [json.loads(line)["line"] for line in out.splitlines()]) == (0, [13]), err


def told(fleet: Any, *command: str) -> str:
    """What a command prints that has no complaint."""
    process = fleet.popen(*command)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return str(out)


def test_a_batch_is_cancelled_by_its_id_and_its_submitter_ends(
    fleet: Any, crew: Path, tmp_path: Path, redis: Redis
) -> None:
    submitter = fleet.popen("submit", str(crew), "--each", str(tmp_path / "inputs.jsonl"), "--at-once", "3")
    eventually(lambda: redis.zcard(keys.key("runs_key", home=keys.home())) == 3, why="three runs are submitted")
    batch = redis.hget(keys.run_key(redis.zrange(keys.key("runs_key", home=keys.home()), 0, 0)[0]), "batch")
    assert told(fleet, "cancel", batch, "--reason", "enough") == f"{batch} cancelled: 3 runs; no more are submitted\n"
    out, err = submitter.communicate(timeout=60)
    assert submitter.returncode == 3, err
    assert {one["error"] for one in map(json.loads, out.splitlines())} == {"enough"}
    # Its first line of progress came as soon as they were submitted
    assert "s  3 of 40 submitted, 3 running\n" in err
    assert "3 of 40 submitted, 3 cancelled" in err
    assert "the batch was cancelled (enough): 37 inputs not submitted" in err
    assert f"to continue it: runner resume {batch}, then the command that submitted it" in err
    again = fleet.popen("cancel", batch)
    assert "is cancelled already" in again.communicate(timeout=60)[1]
    assert again.returncode == 2
    found = json.loads(told(fleet, "show", batch, "--json"))
    assert (found["status"], found["error"], found["submitted"]) == ("cancelled", "enough", 3)
    # When it is resumed, who waits only so long is told that it runs
    resuming = fleet.popen("resume", batch, "--keep-code")
    eventually(lambda: redis.zcard(keys.key("active_key", home=keys.home())) == 3, why="three runs are resumed")
    waiting = fleet.popen("wait", batch, "--timeout", "0.1")
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (124, ""), err
    assert f"batch {batch} is still running after 0.1 s; it continues: runner wait {batch}" in err
    resuming.send_signal(signal.SIGINT)
    err = resuming.communicate(timeout=30)[1]
    assert "37 inputs not submitted yet: the command that submitted the batch continues it" in err


@pytest.mark.usefixtures("started_afresh")
def test_ctrl_c_leaves_what_is_active_running(fleet: Any, crew: Path, tmp_path: Path, redis: Redis) -> None:
    submitter = fleet.popen("submit", str(crew), "--each", str(tmp_path / "inputs.jsonl"), "--at-once", "3")
    eventually(lambda: redis.zcard(keys.key("runs_key", home=keys.home())) == 3, why="three runs are submitted")
    submitter.send_signal(signal.SIGINT)
    out, err = submitter.communicate(timeout=30)
    assert (submitter.returncode, out) == (130, ""), err
    assert "no more runs are submitted, those that are active continue; to continue the batch: the same command" in err
    assert redis.zcard(keys.key("active_key", home=keys.home())) == 3
