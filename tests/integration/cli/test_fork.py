"""``runner fork`` and ``runner diff``, with a real worker: what they print and exit with, what they leave alone."""

import json
import re
from typing import Any

import pytest

from runner.cli.options import as_before, read_inputs

CREW = """
    import time
    from pathlib import Path
    from pydantic import BaseModel
    from runner import Crew, Task
    HERE = Path({here!r})

    class Words(BaseModel):
        words: list[str]
        topic: str = ""

    def collect(ctx) -> Words:
        return Words(words=["owl", "hen"], topic=ctx.inputs["topic"])

    def sort(ctx):
        return " ".join(sorted(ctx.outputs["collect"].json_dict["words"]))

    def colour(ctx):
        return f"{{ctx.inputs.get('colour', 'grey')}} feathers"

    def write(ctx):
        if ctx.inputs.get("wait"):
            while not (HERE / "open").exists():
                time.sleep(0.02)
        return f"{{ctx.outputs['sort'].raw}} with {{ctx.outputs['colour'].raw}}"

    crew = Crew(name="birds", tasks=[
        Task(name="collect", run=collect), Task(name="sort", run=sort), Task(name="colour", run=colour),
        Task(name="write", run=write, output_file="out.txt"),
    ])
"""


@pytest.fixture
def crew(write_crew, tmp_path):
    return write_crew(CREW.format(here=str(tmp_path)))


@pytest.fixture
def run_id(cli, fleet, crew) -> str:
    """A run that went through; its worker still serves."""
    fleet.start("--concurrency", "2")
    said = cli("submit", crew, "--input", "topic=birds", "--input", "kinds:=[1, 2]", "--json")
    assert said.code == 0, said
    return json.loads(said.out)["run_id"]


def read(said) -> Any:
    assert said.code == 0, said
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def completed(client, run_id: str, branch: str) -> list[str]:
    """What a branch did, in its order."""
    events = client.run(run_id, branch).events()
    return [event.fields["task"] for event in events if event.type == "task_completed"]


def test_an_edit_is_followed_to_its_result_and_the_original_is_left_alone(cli, client, run_id, tmp_path):
    before = client.run(run_id).result()
    out = tmp_path / "here" / "out.txt"
    assert out.read_text() == "hen owl with grey feathers"
    said = cli("fork", run_id, "--edit", 'collect={"words": ["emu", "auk"]}', "--branch", "what/if")
    assert (said.code, said.out) == (0, "auk emu with grey feathers\n"), said
    at = client.checkpoints(run_id, "main")[-1].id
    assert said.err.startswith(f"what/if forked from main at {at}: 2 tasks to run\n")
    assert f"completed: {run_id} what/if, 4 tasks" in said.err
    assert completed(client, run_id, "what/if") == ["sort", "write"]
    assert list(client.run(run_id, "what/if").result().outputs) == ["collect", "sort", "colour", "write"], "as planned"
    assert out.read_text() == "hen owl with grey feathers", "a branch beside the current branch writes no files"
    assert client.run(run_id).result().outputs == before.outputs


def test_inputs_and_a_checkpoint_and_json(cli, client, run_id):
    at = next(c.id for c in client.checkpoints(run_id) if c.task == "sort")
    short = at.partition("_")[2]  # as the list shows it, and `checkpoint show` takes it
    found = read(cli("fork", run_id, "--checkpoint", short, "--input", "colour=red", "--json"))
    assert (found["run_id"], found["status"], found["result"]) == (run_id, "completed", "hen owl with red feathers")
    assert re.fullmatch(rf"fork/{at}_[0-9a-f]{{6}}", found["branch"])
    assert completed(client, run_id, found["branch"]) == ["colour", "write"]


def test_an_input_is_changed_as_the_help_says(cli, client, run_id):
    # "text, or JSON for a list or an object; K:=V parses V as JSON": whole, and the others stay
    asked = ("--input", "topic=7", "--input", "kinds=[3]", "--input", "colour:=null", "--input", "note=[3]")
    found = read(cli("fork", run_id, *asked, "--branch", "changed", "--json"))
    assert (found["branch"], found["result"]) == ("changed", "hen owl with None feathers")
    changed = {one.name: one.b for one in client.diff(run_id, "main", "changed").inputs}
    assert changed == {"topic": "7", "kinds": [3], "colour": None, "note": "[3]"}
    # What used none of them is not done again
    assert completed(client, run_id, "changed") == ["collect", "sort", "colour", "write"]
    read(cli("fork", run_id, "--input", "colour=red", "--branch", "red", "--json"))
    assert completed(client, run_id, "red") == ["colour", "write"]


def test_an_edit_from_a_file(cli, client, run_id, tmp_path):
    (tmp_path / "sorted.txt").write_text("a b c\n")
    found = read(cli("fork", run_id, "--edit", f"sort=@{tmp_path / 'sorted.txt'}", "--json"))
    assert found["outputs"]["sort"] == "a b c\n"
    assert found["result"] == "a b c\n with grey feathers"


def test_a_fork_that_leaves_nothing_to_do_is_completed_at_once(cli, run_id):
    found = read(cli("fork", run_id, "--edit", "write=by hand", "--json"))
    assert (found["status"], found["result"]) == ("completed", "by hand")


def test_an_input_that_nothing_reads_is_named(cli, run_id):
    said = cli("fork", run_id, "--input", "topics=bats", "--input", "colour=red", "--json")
    assert read(said)["result"] == "hen owl with red feathers"
    assert [line for line in said.err.splitlines() if line.startswith("warning: ")] == [
        "warning: no task reads the input 'topics': did you mean 'topic'?"
    ]


EVERYTHING_READ = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="all", run=lambda ctx: f"{sorted(ctx.inputs.items())}")])
"""


def test_an_input_that_may_be_misspelt_is_named_where_a_task_reads_them_all(cli, fleet, write_crew):
    fleet.start("--concurrency", "1")
    run_id = read(cli("submit", write_crew(EVERYTHING_READ), "--input", "topic=owls", "--json"))["run_id"]
    said = cli("fork", run_id, "--input", "topics=bats", "--input", "colour=red", "--json")
    assert read(said)["result"] == "[('colour', 'red'), ('topic', 'owls'), ('topics', 'bats')]"
    assert [line for line in said.err.splitlines() if line.startswith("warning: ")] == [
        "warning: the run had no input 'topics': did you mean 'topic'?"
    ]


def test_side_by_side_waited_for_shown_and_cancelled_by_branch(cli, client, fleet, crew, tmp_path, eventually):
    fleet.start("--concurrency", "3")
    run_id = cli("submit", crew, "--input", "topic=x", "--input", "wait=yes", "--detach").out.strip()
    eventually(lambda: "colour" in client.run(run_id).result().outputs, why="the original waits in its last task")
    # Given two forks of a run that goes on: one that waits too, and one that need not
    waits = cli("fork", run_id, "--input", "colour=red", "--detach").out.strip()
    goes = read(cli("fork", run_id, "--input", "wait=", "--branch", "goes", "--detach", "--json"))
    assert goes == {"run_id": run_id, "status": goes["status"], "branch": "goes"}
    eventually(lambda: "colour" in client.run(run_id, waits).result().outputs, why="that one waits there, too")

    # Then each is waited for by its name
    found = read(cli("wait", run_id, "--branch", "goes", "--json"))
    assert (found["branch"], found["result"]) == ("goes", "hen owl with grey feathers")
    shown = {line["name"]: line for line in read(cli("show", run_id, "--json"))["branches"]}
    assert {name: line["status"] for name, line in shown.items()} == {
        "main": "running", waits: "running", "goes": "completed",
    }  # fmt: skip
    assert (shown[waits]["parent"], shown[waits]["inputs"]) == ("main", {"colour": "red"})
    assert shown[waits]["checkpoint"] == next(c.id for c in client.checkpoints(run_id, "main") if c.task == "colour")
    mine = read(cli("show", run_id, "--branch", "goes", "--json"))
    assert (mine["branch"], mine["status"], mine["ended_at"]) == ("goes", "completed", shown["goes"]["ended_at"])
    assert mine["created_at"] == shown["goes"]["created_at"] <= mine["ended_at"]
    assert read(cli("show", run_id, "--json"))["ended_at"] is None, "main goes on"
    table = cli("show", run_id, "--branch", waits).out
    assert f"running  branch {waits}" in table
    assert re.search(rf"^{waits} +running +1 +main at {shown[waits]['checkpoint']}$", table, re.MULTILINE), table
    assert re.search(r"^goes +completed +0 +main at ", table, re.MULTILINE), table

    # When one is cancelled, the others go on
    assert read(cli("cancel", run_id, "--branch", waits, "--json"))["status"] == "cancelled"
    said = cli("wait", run_id, "--branch", waits)
    assert said.code == 3
    assert f"resume it: runner resume {run_id} --branch {waits}" in said.err
    (tmp_path / "open").touch()
    assert read(cli("wait", run_id, "--json"))["result"] == "hen owl with grey feathers"
    said = cli("resume", run_id, "--branch", waits, "--json")
    assert read(said)["result"] == "hen owl with red feathers"
    assert said.err.startswith(f"the current branch of run {run_id} is now {waits}; it was main\n")


def test_diff(cli, client, run_id):
    cli("fork", run_id, "--edit", 'collect={"words": ["emu"]}', "--branch", "emu", "--input", "topic=one")
    found = read(cli("diff", run_id, "main", "emu", "--json"))
    assert (found["a"], found["b"], found["alike"]) == ("main", "emu", ["colour"])
    assert found["inputs"] == [{"name": "topic", "a": "birds", "b": "one"}]
    tasks = {one["task"]: one for one in found["tasks"]}
    assert {task: one["how"] for task, one in tasks.items()} == dict.fromkeys(("collect", "sort", "write"), "changed")
    assert tasks["sort"]["diff"] == "@@ -1 +1 @@\n-hen owl\n+emu"
    assert isinstance(tasks["write"]["a"]["ms"], int)
    assert tasks["collect"]["b"]["ms"] is None, "a person gave it"
    lines = cli("diff", run_id, "main", "emu").out.splitlines()
    assert lines[:4] == ["--- main", "+++ emu", '-input topic = "birds"', '+input topic = "one"']
    assert '-  "topic": "birds"' in lines, "JSON is compared by its lines"
    # With a checkpoint, by the beginning of its id: what was not done by then is there on one side only
    at = next(c.id for c in client.checkpoints(run_id, "main") if c.task == "sort")
    found = read(cli("diff", run_id, at[:-1], "main", "--json"))
    assert found["a"] == f"{at} (main)"
    assert [(one["task"], one["how"]) for one in found["tasks"]] == [("colour", "only in b"), ("write", "only in b")]
    assert cli("diff", run_id, "main", "main").out.splitlines()[-1] == " no difference: the same inputs, 4 tasks alike"


def test_text_over_a_list_or_an_object_is_taken_as_json():
    before = {"a": [1], "b": {"c": 1}, "d": "text", "e": 5, "f": [1]}
    pairs = ("a=[2]", 'b={"c": 2}', "d=[2]", "e=6", "f:=null", "new=[2]")
    assert as_before(read_inputs(pairs, None), pairs, before) == {
        "a": [2], "b": {"c": 2}, "d": "[2]", "e": "6", "f": None, "new": "[2]",
    }  # fmt: skip


def test_what_is_refused(cli, client, run_id):
    at = next(c.id for c in client.checkpoints(run_id, "main") if c.task == "collect")
    for arguments, message in (
        (["--edit", "colect=x"], f"run {run_id} has no task 'colect' to edit: did you mean 'collect'?"),
        (["--edit", "sort=x", "--checkpoint", at], f"task 'sort' is not committed at checkpoint {at}: "),
        (["--edit", "collect=words"], "the output of task 'collect' is JSON, but the edit is not: "),
        (["--edit", 'collect={"word": []}'], "the edit of task 'collect' is not a valid Words (words: Field required)"),
        (["--edit", "sort"], "--edit 'sort' is neither TASK=TEXT nor TASK=@FILE"),
        (["--edit", "sort=@nowhere"], "--edit sort=@nowhere cannot be read: No such file or directory"),
        (["--branch", "main"], f"run {run_id} already has a branch 'main': choose another name"),
        (["--branch", "../../etc"], "the branch name '../../etc' begins with / or has .. as a part"),
        (["--branch", "a b"], "'a b' is not a branch name"),
        (["--checkpoint", "1999"], f"run {run_id} has no checkpoint 1999"),
        (["--input", "x"], "--input 'x' is neither name=text nor name:=JSON"),
        (
            ["--input", "kinds=many"],
            "the input 'kinds' is a list: give it as JSON, as in --input kinds:='[1, 2]'; text in its place is "
            "--input kinds:='\"TEXT\"'",
        ),
    ):
        said = cli("fork", run_id, *arguments)
        assert said.code == 2, said
        assert said.error.startswith(message)
    for command in (["fork", "r-0"], ["diff", "r-0", "a", "b"]):
        said = cli(*command)
        assert (said.code, "there is no run r-0" in said.error) == (2, True)
    said = cli("diff", run_id, "main", "nope")
    assert said.code == 2
    assert said.error.startswith(f"run {run_id} has neither a branch nor a checkpoint 'nope'; branches: main; ")
    said = cli("resume", run_id, "--checkpoint", at, "--branch", "main")
    assert said.code == 2
    assert said.error == (
        f"branch main of run {run_id} has advanced past checkpoint {at}: `runner fork {run_id} --checkpoint {at}` "
        f"starts another branch there, `runner resume {run_id} --branch main` resumes from its head"
    )
    said = cli("resume", run_id, "--checkpoint", at, "--branch", "new")
    assert (said.code, "`runner fork" in said.error) == (2, True)
    said = cli("wait", run_id, "--branch", "nope")
    assert (said.code, said.error) == (2, f"run {run_id} has no branch 'nope'; there are: main")
    assert client.store.runs.branches(run_id) == ["main"]
