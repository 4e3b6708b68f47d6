"""``runner submit`` from its start to its end, with a real worker: what it prints, what it exits with, what goes on."""

import json
import re
import signal
from pathlib import Path

import pytest

LEDGER = {"paid", "replayed", "in_doubt", "prompt_tokens", "completion_tokens"}
MORE = {
    **dict.fromkeys(("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"), 0),
    **{
        "replayed_tokens": 0,
        "tools": {"paid": 0, "replayed": 0, "in_doubt": 0},
        "cost": None,
        "cost_known": 0,
        "unpriced": {},
        "currency": "USD",
        "by": [],
        "by_tool": {},
    },
}
CONTRACT = {"run_id", "status", "branch", "result", "outputs", "ledger", "recoveries", "error"}

#: Prints in every way there is, when it is imported and when it runs.
NOISY = """
    import os, sys
    from runner import Crew, Task
    print("printed at import")
    os.write(1, b"written at import")
    sys.stdout.write("left in a buffer")

    def greet(ctx):
        print("printed by a task")
        return f"Hello {ctx.step('look', str.upper, ctx.inputs['who'])}!"

    crew = Crew(name="greeting", tasks=[
        Task(name="greet", description="Greet {who}", run=greet, output_file="out/{who}.txt"),
        Task(name="count", run=lambda ctx: {"letters": len(ctx.outputs["greet"].raw)}),
    ])
"""

#: Waits for a file before it ends its second task; each step leaves a line.
GATED = """
    import time
    from pathlib import Path
    from runner import Crew, Task
    HERE = Path({here!r})

    def trace(line):
        with (HERE / "trace").open("a") as out:
            out.write(line + chr(10))
        return line

    def gated(ctx):
        ctx.step("before", trace, "before the gate")
        try:
            while not (HERE / "open").exists():
                time.sleep(0.02)
        except BaseException:
            (HERE / "stopped").touch()
            raise
        return ctx.step("after", trace, "after the gate")

    def first(ctx):
        return ctx.step("first", trace, "first")

    crew = Crew(tasks=[Task(name="first", run=first), Task(name="gated", run=gated)])
"""


@pytest.fixture
def gated(write_crew, tmp_path):
    """The gated crew: its path."""
    return write_crew(GATED.replace("{here!r}", repr(str(tmp_path))))


@pytest.fixture
def lines(tmp_path):
    """What the gated crew's steps wrote so far."""
    return lambda: (tmp_path / "trace").read_text().splitlines() if (tmp_path / "trace").exists() else []


def read(stdout: str) -> dict:
    """The one JSON object that stdout is."""
    assert stdout.endswith("\n")
    assert stdout.count("\n") == 1
    found = json.loads(stdout)
    assert set(found) == CONTRACT
    assert set(found["ledger"]) == LEDGER | MORE.keys()
    return found


def test_json_and_text_and_nothing_else_on_stdout(fleet, write_crew, cli):
    crew = write_crew(NOISY)
    fleet.start("--concurrency", "1")
    arguments = ["submit", crew, "--input", "who=owl", "--id", "nightly 7"]
    # Given a crew that prints whenever it can, its result alone is on stdout
    said = cli(*arguments, "--json")
    assert said.code == 0, said.err
    found = read(said.out)
    assert found["status"] == "completed"
    assert found["branch"] == "main"
    assert found["outputs"] == {"greet": "Hello OWL!", "count": '{"letters": 10}'}
    assert found["result"] == '{"letters": 10}'
    assert found["ledger"] == dict.fromkeys(LEDGER, 0) | MORE | {"paid": 1}
    assert (found["recoveries"], found["error"]) == (0, None)
    assert Path("out/owl.txt").read_text() == "Hello OWL!"
    assert "printed at import" in said.err
    # The same id gives the same run and the same result, without running again; the real command prints the same
    Path("out/owl.txt").unlink()
    again = fleet.runner(*map(str, arguments))
    assert again.returncode == 0
    assert again.stdout == '{"letters": 10}\n'
    assert f"the id 'nightly 7' was submitted before: this is run {found['run_id']}\n" in again.stderr
    assert {"printed at import", "written at import", "left in a buffer"} <= set(
        re.findall("printed at import|written at import|left in a buffer", again.stderr)
    )
    assert Path("out/owl.txt").read_text() == "Hello OWL!"
    # The same id with other inputs is refused
    other = cli("submit", crew, "--input", "who=hen", "--id", "nightly 7", "--json")
    assert (other.code, other.out) == (2, "")
    assert other.err.splitlines()[-1].endswith(
        f"error: the id 'nightly 7' was already used for other inputs (run {found['run_id']}): choose another id"
    )
    # Who waits later gets the same; an output file that cannot be written is said, and the result is not lost
    Path("out/owl.txt").unlink()
    assert read(cli("wait", found["run_id"], "--json", "--timeout", "60").out) == found
    Path("out/owl.txt").unlink()
    Path("out").rmdir()
    Path("out").write_text("a file where a folder is to be")
    said = cli("wait", found["run_id"], "--json")
    assert said.code == 1
    assert read(said.out) == found
    assert "error: an output file cannot be written here: " in said.err


def test_detached_killed_and_interrupted_submits_leave_their_runs_going(
    fleet, gated, client, lines, tmp_path, eventually, cli, start
):
    fleet.start("--concurrency", "4")
    # Given three submits of a run that takes its time: one detached, one that is killed, one interrupted
    detached = cli("submit", gated, "--detach", "--json")
    assert detached.code == 0
    first = json.loads(detached.out)
    assert first["status"] == "running"
    plain = cli("submit", gated, "--detach")
    assert client.run(plain.out.strip()).status == "running"
    killed, interrupted = (start("submit", gated, "--json", "--id", name) for name in ("killed", "int"))
    eventually(lambda: lines().count("before the gate") == 4, why="all four are at the gate")
    killed.kill()
    interrupted.send_signal(signal.SIGINT)
    out, err = interrupted.communicate(timeout=60)
    assert (interrupted.returncode, out) == (130, "")
    assert "detached; the run continues: runner wait r-" in err
    assert "Traceback" not in err
    killed.communicate(timeout=60)
    # wait gives up when it is told to, and the run goes on
    said = cli("wait", first["run_id"], "--timeout", "0.1", "--json")
    assert said.code == 124
    assert said.out == ""
    assert f"error: run {first['run_id']} is still running after 0.1 s; the run continues: " in said.err
    follow = start("events", first["run_id"], "--follow", "--json")
    # When the gate opens
    (tmp_path / "open").touch()
    # Then each run is completed, and wait gives its result
    for run in client.runs():
        said = cli("wait", run.id, "--json", "--timeout", "60")
        assert said.code == 0, said.err
        assert read(said.out)["result"] == "after the gate"
    assert sorted(lines()) == sorted(["first", "before the gate", "after the gate"] * 4)
    # and who follows the events gets all of them, and an end
    out, _ = follow.communicate(timeout=60)
    assert follow.returncode == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["type"] for e in events if e["type"].startswith("crew")] == [
        "crew_kickoff_started", "crew_kickoff_completed",
    ]  # fmt: skip
    assert [e["seq"] for e in events] == sorted(e["seq"] for e in events)
    assert [e["task"] for e in events if e["type"] == "task_completed"] == ["first", "gated"]
    assert out == cli("events", first["run_id"], "--json").out
    assert "task_completed" in cli("events", first["run_id"]).out


def test_a_cancelled_run_goes_on_where_it_was(fleet, gated, client, lines, tmp_path, eventually, cli, start):
    fleet.start("--concurrency", "1")
    submit = start("submit", gated, "--json")
    eventually(lambda: "before the gate" in lines(), why="it is at the gate")
    [run] = client.runs()
    # When a person cancels it, submit says so
    said = cli("cancel", run.id, "--json")
    assert (said.code, json.loads(said.out)) == (0, {"run_id": run.id, "status": "cancelled"})
    out, err = submit.communicate(timeout=60)
    assert submit.returncode == 3
    assert "Traceback" not in err
    found = read(out)
    assert (found["status"], found["result"], found["outputs"]) == ("cancelled", None, {"first": "first"})
    eventually((tmp_path / "stopped").exists, why="the task in flight is stopped")
    # cancelling it twice is refused
    said = cli("cancel", run.id)
    assert said.code == 2
    assert said.error == f"run {run.id} is cancelled: there is nothing to cancel"
    # When it is resumed, what was done is not done again
    (tmp_path / "open").touch()
    said = cli("resume", run.id, "--json")
    assert said.code == 0, said.err
    found = read(said.out)
    assert (found["status"], found["result"]) == ("completed", "after the gate")
    assert found["ledger"]["replayed"] == 1
    assert lines() == ["first", "before the gate", "after the gate"]
    # and resuming what is completed says so, and gives the result
    said = cli("resume", run.id, "--json")
    assert said.code == 0
    assert read(said.out) == found
    assert f"run {run.id} is completed: nothing is left to do\n" in said.err


FAILING = """
    from runner import Crew, Task

    def second(ctx):
        raise LookupError("no such page")

    crew = Crew(tasks=[Task(name="first", run=lambda ctx: "one"), Task(name="second", run=second)])
"""


def test_a_failed_run_goes_on_with_the_crew_file_put_right(fleet, write_crew, cli):
    crew = write_crew(FAILING)
    fleet.start("--concurrency", "1")
    submitted = fleet.runner("submit", str(crew), "--json")
    assert submitted.returncode == 1
    found = read(submitted.stdout)
    assert (found["status"], found["result"], found["outputs"]) == ("failed", None, {"first": "one"})
    assert found["error"] == "task 'second': LookupError: no such page (crew.py:5)"
    run_id = found["run_id"]
    # The same in words
    said = cli("wait", run_id)
    assert (said.code, said.out) == (1, "")
    assert f"error: {found['error']}\nresume it: runner resume {run_id}\n" in said.err
    # When the crew file is put right, resume asks before it uses it
    crew.write_text(crew.read_text().replace('raise LookupError("no such page")', 'return "two"'))
    said = cli("resume", run_id, "--json")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"error: the code of {crew}, or a file beside it, has changed since run {run_id} was submitted: "
        "--accept-code-change resumes with the new code, --keep-code with the old\n"
    )
    # Both at once is neither, and nothing is done, as if there were no such run
    for run in (run_id, "r-0"):
        said = cli("resume", run, "--accept-code-change", "--keep-code", "--json")
        assert (said.code, said.error) == (
            2, "--accept-code-change resumes with the new code, --keep-code with the old: give one of them"
        )  # fmt: skip
    assert json.loads(cli("show", run_id, "--json").out)["status"] == "failed"
    # The old code fails as it did
    said = cli("resume", run_id, "--keep-code", "--json")
    assert said.code == 1
    # The new code ends it, on top of what was done
    said = cli("resume", run_id, "--accept-code-change", "--detach", "--json")
    assert json.loads(said.out)["run_id"] == run_id
    said = cli("wait", run_id, "--json")
    assert said.code == 0
    assert read(said.out)["outputs"] == {"first": "one", "second": "two"}


def test_the_verbs_that_look(fleet, write_crew, cli, start):
    crew = write_crew(NOISY)
    # Given a run that nobody serves, submit says how to serve it
    waiting = start("submit", crew, "--input", "who=owl", "--max-checkpoints", "1", "--json", "--queue", "q2")
    for line in waiting.stderr:
        if "no worker serves" in line:
            assert "no worker serves the queue 'q2' yet; start one: runner worker --queue q2" in line
            break
    [listed] = json.loads(cli("runs", "--json").out)
    assert "waiting: no worker serves the queue 'q2'\n" in cli("show", listed["run_id"]).out
    assert json.loads(cli("show", listed["run_id"], "--json").out)["waiting_for"] == "no worker serves the queue 'q2'"
    fleet.start("--concurrency", "1", "--queue", "q2")
    out, _ = waiting.communicate(timeout=60)
    run_id = read(out)["run_id"]
    # each verb has a table for people and JSON for programs
    [listed] = json.loads(cli("runs", "--json").out)
    assert (listed["run_id"], listed["status"], listed["crew"]) == (run_id, "completed", "greeting")
    assert "inputs" not in listed
    assert run_id in cli("runs").out
    shown = json.loads(cli("show", run_id, "--json").out)
    assert {*CONTRACT, "tasks", "checkpoints"} <= set(shown)
    assert shown["waiting_for"] == ""
    assert "waiting: " not in cli("show", run_id).out
    assert "no worker serves" not in cli("wait", run_id).err
    assert [(row["task"], row["state"]) for row in shown["tasks"]] == [("greet", "committed"), ("count", "committed")]
    assert shown["checkpoints"] == {"main": 1}
    assert "steps: 1 paid, 0 replayed, 0 in doubt; 0 recoveries; checkpoints: main 1\n" in cli("show", run_id).out
    [checkpoint] = json.loads(cli("checkpoint", "list", run_id, "--json").out)
    assert (checkpoint["branch"], checkpoint["task"], checkpoint["seq"]) == ("main", "count", 2)
    assert checkpoint["id"] in cli("checkpoint", "list", run_id).out
    said = cli("doctor", "--json")
    assert said.code == 0, said.out
    findings = {finding["what"]: finding for finding in json.loads(said.out)}
    assert findings["workers"]["ok"] is True
    assert (findings["workers"]["hint"], findings["workers"]["exit_code"]) == ("", 0)
    assert "queue q2" in cli("doctor").out


def test_nothing_is_there_yet(cli):
    assert cli("runs", "--json").out == "[]\n"
    assert cli("runs").out == "no runs yet: runner submit crew.py\n"
