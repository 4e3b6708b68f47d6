"""``runner checkpoint list | show | diff | prune`` on files, an SQLite file and a run."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.flows import Flow, listen, start
from runner.providers.config import CheckpointConfig
from runner.providers.json import JsonProvider
from runner.providers.redis.provider import RedisProvider
from runner.providers.sqlite import SqliteProvider

TEXTS = {"collect": "owls\nhens\ngeese", "sort": "geese\nhens\nowls", "write": "Once upon a time"}


def state(done: int, *, branch: str = "main", topic: str = "birds", **other: str) -> str:
    """A state as a kickoff writes it: a crew of three tasks, some of them done."""
    texts = {**TEXTS, **other}
    tasks = [
        {
            "key": key, "id": f"t{i}", "name": key, "description": f"{key} things", "expected_output": None,
            "agent": "a1" if key == "write" else None, "context": None,
            "output": {"raw": texts[key]} if i < done else None,
        }
        for i, key in enumerate(TEXTS)
    ]  # fmt: skip
    crew = {
        "entity_type": "crew", "id": "c1", "name": "barnyard", "process": "sequential", "tasks": tasks,
        "agents": [{"entity_type": "agent", "id": "a1", "role": "writer"}],
        "checkpoint_inputs": {"topic": topic, "count": 3},
    }  # fmt: skip
    record = {"nodes": {f"e{i}": {"event": {}, "edges": {}} for i in range(done)}}
    return json.dumps({"crewai_version": "1.0.0", "parent_id": None, "branch": branch, "entities": [crew],
                       "event_record": record, "trigger": "task_completed"})  # fmt: skip


class Place:
    """A location with three checkpoints on main and one on a fork of the second."""

    def __init__(self, provider: Any, location: str) -> None:
        self.provider, self.location, self.ids = provider, location, []
        for done in (1, 2, 3):
            self.write(state(done), self.ids[-1] if self.ids else None)
        self.write(state(2, branch="fork/one", topic="cats", sort="hens\nowls"), self.ids[1], "fork/one")

    def write(self, data: str, parent: str | None, branch: str = "main") -> str:
        found = self.provider.checkpoint(data, self.location, parent_id=parent, branch=branch)
        self.ids.append(self.provider.extract_id(found))
        return found


@pytest.fixture(params=["json", "sqlite", "redis"])
def place(request, tmp_path) -> Place:
    """The checkpoints as files, in SQLite, and in Redis."""
    if request.param == "json":
        return Place(JsonProvider(), str(tmp_path / "checkpoints"))
    if request.param == "sqlite":
        return Place(SqliteProvider(), str(tmp_path / "checkpoints.db"))
    return Place(RedisProvider(), f"{request.getfixturevalue('server').url}?prefix=birds")


def read(said) -> Any:
    """The one JSON value on stdout."""
    assert (said.code, said.err) == (0, ""), said
    return json.loads(said.out)


def test_list(cli, place):
    found = read(cli("checkpoint", "list", place.location, "--json"))
    assert [(one["id"], one["branch"], one["parent"]) for one in found] == [
        (place.ids[0], "main", ""), (place.ids[1], "main", place.ids[0]), (place.ids[2], "main", place.ids[1]),
        (place.ids[3], "fork/one", place.ids[1]),
    ]  # fmt: skip
    assert all(one["complete"] and one["size"] > 500 and one["location"].startswith(place.location) for one in found)
    assert all(place.provider.from_checkpoint(one["location"]) for one in found)
    [one] = read(cli("checkpoint", "list", place.location, "--branch", "fork/one", "--json"))
    assert one["id"] == place.ids[3]
    lines = cli("checkpoint", "list", place.location).out.splitlines()
    assert lines[0].split() == ["checkpoint", "branch", "written", "size", "parent"]
    assert [line.split()[0] for line in lines[1:]] == place.ids


def test_show(cli, place):
    found = read(cli("checkpoint", "show", place.location, place.ids[1], "--json"))
    assert found["entities"] == [{"kind": "crew", "name": "barnyard", "done": 2, "total": 3}]
    assert (found["progress"], found["events"], found["version"]) == ({"done": 2, "total": 3}, 2, "1.0.0")
    assert found["inputs"] == {"topic": "birds", "count": 3}
    assert found["trigger"] == "task_completed"
    assert [(task["task"], task["status"], task["output"]) for task in found["tasks"]] == [
        ("collect", "done", TEXTS["collect"]), ("sort", "done", TEXTS["sort"]), ("write", "pending", None),
    ]  # fmt: skip
    assert found["tasks"][2]["agent"] == "writer"
    # Without an id the newest; with the beginning of one, also of the part that tells it apart
    assert read(cli("checkpoint", "show", place.location, "--json"))["id"] == place.ids[3]
    assert read(cli("checkpoint", "show", place.location, place.ids[2].partition("_")[2], "--json"))["progress"] == {
        "done": 3, "total": 3,
    }  # fmt: skip
    out = cli("checkpoint", "show", place.location, place.ids[1]).out
    assert f"parent    {place.ids[0]}\n" in out
    assert "crew  barnyard  2 of 3 done\n" in out
    assert "collect  done     owls hens geese\n" in out


def test_show_of_a_flow(cli, tmp_path):
    """It is called what its class is; of its methods, one waits for a person."""

    class Essay(Flow):
        checkpoint = CheckpointConfig(location=str(tmp_path / "essays"), on_events=["flow_paused"])

        @start()
        def draft(self):
            return "Owls are quiet."

        @listen(draft)
        def judge(self):
            return self.pause("Is it good?")

        @listen(judge)
        def publish(self):
            return "published"

    Essay().kickoff()
    found = read(cli("checkpoint", "show", tmp_path / "essays", "--json"))
    assert found["entities"] == [{"kind": "flow", "name": "Essay", "done": 1, "total": 3}]
    assert [(task["task"], task["status"]) for task in found["tasks"]] == [
        ("draft", "done"), ("judge", "waiting"), ("publish", "pending"),
    ]  # fmt: skip


def test_diff(cli, place):
    found = read(cli("checkpoint", "diff", place.location, place.ids[1], place.ids[3], "--json"))
    assert found["inputs"] == [{"name": "topic", "a": "birds", "b": "cats"}]
    [task] = found["tasks"]
    assert (task["task"], task["diff"]) == ("sort", "@@ -1,3 +1,2 @@\n-geese\n hens\n owls")
    assert found["same"] == 2
    said = cli("checkpoint", "diff", place.location, place.ids[1], place.ids[3])
    assert said.code == 0
    assert said.out.splitlines() == [
        f"--- {place.ids[1]} (main)", f"+++ {place.ids[3]} (fork/one)",
        '-input topic = "birds"', '+input topic = "cats"',
        "@@ task sort: done @@", "@@ -1,3 +1,2 @@", "-geese", " hens", " owls", " 2 tasks alike",
    ]  # fmt: skip


def test_prune(cli, place):
    assert read(cli("checkpoint", "prune", place.location, "--keep", "1", "--branch", "main", "--json")) == {
        "removed": 2, "branches": {"main": 2},
    }  # fmt: skip
    left = [one["id"] for one in read(cli("checkpoint", "list", place.location, "--json"))]
    assert left == [place.ids[2], place.ids[3]]
    said = cli("checkpoint", "prune", place.location, "--keep", "0")
    assert (said.code, said.out) == (0, "main: 1 removed\nfork/one: 1 removed\n")
    assert cli("checkpoint", "list", place.location).out == "no checkpoints\n"
    assert cli("checkpoint", "prune", place.location, "--keep", "0").out == "no checkpoints\n"


def test_a_torn_file_is_marked_passed_over_and_named(cli, tmp_path):
    place = Place(JsonProvider(), str(tmp_path / "checkpoints"))
    torn = Path(place.write(state(3), place.ids[2]))
    torn.write_text(torn.read_text()[:200])
    found = {one["id"]: one["complete"] for one in read(cli("checkpoint", "list", place.location, "--json"))}
    assert found.pop(place.ids[4]) is False
    assert all(found.values())
    assert f"{place.ids[4]}  torn" in cli("checkpoint", "list", place.location).out
    assert read(cli("checkpoint", "show", place.location, "--json"))["id"] == place.ids[3]
    said = cli("checkpoint", "show", place.location, place.ids[4])
    assert said.code == 2
    assert said.error.startswith("Checkpoint is torn: ")
    assert place.ids[4] in said.error
    torn.write_text('{"a": 1}')
    assert cli("checkpoint", "show", place.location, place.ids[4]).error == (
        f"checkpoint {place.ids[4]} is not a state: it has no entities; choose another one"
    )


def test_what_crewai_itself_wrote_is_shown(cli, tmp_path):
    folder = tmp_path / "theirs" / "main"
    folder.mkdir(parents=True)
    task = {"description": "Collect birds", "output": {"raw": "owls", "agent": "me"}, "agent": {"role": "reporter"}}
    entity = {"entity_type": "crew", "name": "crew", "tasks": [task, {"description": "Sort", "output": None}],
              "agents": [], "checkpoint_inputs": None}  # fmt: skip
    (folder / "20260715T101530_0123abcd_p-none.json").write_text(
        json.dumps({"crewai_version": "1.14.6", "entities": [entity], "event_record": {"nodes": {}}, "branch": "main"})
    )
    found = read(cli("checkpoint", "show", tmp_path / "theirs", "--json"))
    assert [(one["task"], one["status"], one["agent"]) for one in found["tasks"]] == [
        ("task_1", "done", "reporter"), ("task_2", "pending", ""),
    ]  # fmt: skip


def test_a_redis_that_is_not_there_is_said_without_its_password(cli):
    for word in (["list"], ["show"], ["diff", "1", "2"], ["prune", "--keep", "9"]):
        said = cli("checkpoint", word[0], "redis://me:s3cret@127.0.0.1:1/0?prefix=x", *word[1:])
        assert said.code == 4, said
        assert "s3cret" not in said.error
        assert "redis://127.0.0.1:1/0" in said.error


WORDS = [["list"], ["show"], ["show", "2026"], ["diff", "2026", "2027"], ["prune", "--keep", "2"]]


@pytest.mark.parametrize("json", [[], ["--json"]])
@pytest.mark.parametrize("word", WORDS, ids=" ".join)
def test_places_that_are_none(word, json, refused, tmp_path):
    verb, *rest = word

    def say(place: Any) -> str:
        return refused("checkpoint", verb, place, *rest, *json)

    missing = "there is no run r-123456789abc: `runner runs` lists them (a finished run is only kept for a while)"
    assert say("r-123456789abc") == missing
    assert say("nowhere/at/all") == "there is no directory, file or run nowhere/at/all"
    assert say("nowhere.db") == "there is no directory, file or run nowhere.db"
    assert say(" ") == "the location is empty: name a run, a directory, an SQLite file or a redis:// URL"
    (tmp_path / "notes.txt").write_text("hello")
    assert say(tmp_path / "notes.txt") == (
        f"{tmp_path}/notes.txt is neither a directory of checkpoints nor an SQLite file of them"
    )


def test_one_checkpoint_is_no_place(refused, tmp_path):
    for provider, name in ((JsonProvider(), "checkpoints"), (SqliteProvider(), "checkpoints.db")):
        location = str(tmp_path / name)
        one = provider.checkpoint(state(1), location)
        assert refused("checkpoint", "list", one) == (
            f"{one} is one checkpoint: name the location that holds it, as in "
            f"runner checkpoint show {location} {provider.extract_id(one)}"
        )


@pytest.mark.parametrize("word", [["list"], ["show"]], ids=" ".join)
def test_an_empty_place_is_not_what_is_here(refused, word):
    assert refused("checkpoint", *word, "").startswith("the location is empty: name a run, ")


def test_a_directory_of_other_files_is_said_to_hold_none(cli, tmp_path):
    assert cli("checkpoint", "list", tmp_path).out == "no checkpoints\n"
    (tmp_path / "notes.txt").touch()
    said = cli("checkpoint", "list", tmp_path)
    assert (said.code, said.out) == (0, f"no checkpoints: nothing in {tmp_path} is one\n")


def test_a_branch_is_no_place(refused, tmp_path):
    where = tmp_path / "c"
    JsonProvider().checkpoint(json.dumps({"entities": [], "branch": "a/b"}), str(where), branch="a/b")
    assert refused("checkpoint", "list", where / "a/b") == (
        f"{where}/a/b is a branch of the checkpoints in {where}: name that, as in "
        f"runner checkpoint list {where} --branch a/b"
    )


def test_ids_and_branches_that_are_none(cli, place):
    kind = (
        {"s": "JSON files", "b": "SQLite"}.get(place.location[-1], "Redis") if "://" not in place.location else "Redis"
    )

    def refused(*arguments: str) -> str:
        said = cli(*arguments)
        assert said.code == 2
        return said.error

    lists = f"`runner checkpoint list {place.location}` lists its checkpoints"
    assert refused("checkpoint", "show", place.location, "1999") == (
        f"{place.location} ({kind}) has no checkpoint 1999: {lists}"
    )
    assert refused("checkpoint", "diff", place.location, place.ids[0], "20") == (
        f"20 begins 4 checkpoints of {place.location} ({kind}): give more characters of it"
    )
    assert refused("checkpoint", "diff", place.location, "main", place.ids[0]).endswith(
        f"; for the newest of a branch: `runner checkpoint diff {place.location} {place.ids[2]} {place.ids[0]}`"
    )
    for word in (["list"], ["prune", "--keep", "1"]):
        assert refused("checkpoint", *word, place.location, "--branch", "b") == (
            f"{place.location} ({kind}) has no branch 'b'; it has main, fork/one"
        )


def test_what_is_here_is_listed_and_shown_where_nothing_is_named(cli):
    place = Place(JsonProvider(), "./.checkpoints")
    assert read(cli("checkpoint", "list", "--json")) == read(cli("checkpoint", "list", ".checkpoints", "--json"))
    assert read(cli("checkpoint", "show", "--json"))["id"] == place.ids[-1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prune", "x"], "choose what to remove: --keep N, or --older-than AGE"),
        (["prune", "x", "--keep", "-1"], "invalid value for '--keep': -1 is not in the range 0<=x<=1000000; see"),
        (["prune", "x", "--keep", "all"], "invalid value for '--keep': 'all' is not a valid whole number; see"),
        (["diff", "x", "a"], "missing argument 'B'; see runner checkpoint diff --help"),
        (["prune", "--keep", "1"], "missing argument 'WHERE'; see runner checkpoint prune --help"),
        (["list"], "there is no ./.checkpoints here and no run yet: name a run, a directory"),
        (["x", "y"], "got unexpected extra argument (y); see runner checkpoint browse --help"),
    ],
)
def test_bad_usage(arguments, line, refused):
    assert refused("checkpoint", *arguments).startswith(line)


@pytest.mark.parametrize("arguments", [[], ["./.checkpoints"], ["browse", "./.checkpoints"]])
def test_the_browser_needs_a_terminal(arguments, refused):
    place = arguments[-1] if arguments else "WHERE"
    assert refused("checkpoint", *arguments) == (
        f"the browser needs a terminal: `runner checkpoint list {place}` prints the checkpoints"
    )


def test_the_browser_is_an_extra(tmp_path):
    without = "import sys; sys.modules['textual'] = None; from runner.cli import main; main()"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", without, "checkpoint", str(tmp_path)]
    ends = {"stdin": theirs, "stdout": theirs}
    done = subprocess.run(
        command, **ends, stderr=subprocess.PIPE, text=True, env={**os.environ, "TERM": "xterm"}, check=False, timeout=60
    )
    for end in (ours, theirs):
        os.close(end)
    assert done.returncode == 2
    assert done.stderr == (
        "error: the browser needs textual: `pip install 'crew-runner[browser]'`; "
        f"`runner checkpoint list {tmp_path}` prints the checkpoints without it\n"
    )


def test_help_names_the_verbs(cli):
    said = cli("checkpoint", "--help")
    assert said.code == 0
    assert {"browse", "list", "show", "diff", "resume", "fork", "prune"} <= set(said.out.split())


def test_nothing_but_the_browser_pays_for_textual():
    code = "import sys, runner.cli, runner.client.checkpoints.fleet; sys.exit('textual' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


THREE = """
    from runner import Crew, Task
    crew = Crew(name="barnyard", tasks=[
        Task(name="collect", run=lambda ctx: "owls, hens"),
        Task(name="sort", run=lambda ctx: "hens, owls", description="Sort {topic}"),
        Task(name="write", run=lambda ctx: "the end"),
    ])
"""


def test_a_run_on_the_fleet(fleet, write_crew, cli):
    fleet.start("--concurrency", "1")
    submitted = fleet.runner("submit", str(write_crew(THREE)), "--input", "topic=birds", "--json")
    run = json.loads(submitted.stdout)["run_id"]
    kept = read(cli("checkpoint", "list", run, "--json"))
    assert [one["task"] for one in kept] == ["collect", "sort", "write"]
    assert set(kept[0]) == {"id", "branch", "seq", "created_at", "parent", "trigger", "task"}
    ids = [one["id"] for one in kept]
    # show: by the beginning of an id, what was done by then
    found = read(cli("checkpoint", "show", run, ids[1], "--json"))
    assert (found["inputs"], found["progress"], found["seq"]) == ({"topic": "birds"}, {"done": 2, "total": 3}, 2)
    assert [(one["task"], one["output"]) for one in found["tasks"]] == [
        ("collect", "owls, hens"), ("sort", "hens, owls"), ("write", None),
    ]  # fmt: skip
    assert read(cli("checkpoint", "show", run, "--json"))["id"] == ids[2]
    assert "crew  barnyard  2 of 3 done\n" in cli("checkpoint", "show", run, ids[1]).out
    # diff: what the one adds to the other
    found = read(cli("checkpoint", "diff", run, ids[0], ids[2], "--json"))
    assert [one["task"] for one in found["tasks"]] == ["sort", "write"]
    # prune: exactly
    assert read(cli("checkpoint", "prune", run, "--keep", "1", "--json")) == {"removed": 2, "branches": {"main": 2}}
    assert [one["id"] for one in read(cli("checkpoint", "list", run, "--json"))] == ids[2:]
    said = cli("checkpoint", "show", run, ids[0])
    assert (said.code, said.error) == (
        2, f"run {run} has no checkpoint {ids[0]}: `runner checkpoint list {run}` lists its checkpoints",
    )  # fmt: skip
    said = cli("checkpoint", "prune", run, "--keep", "1", "--branch", "b")
    assert (said.code, said.error) == (2, f"run {run} has no branch 'b'; it has main")
    # a fork of it, and a resume, are the fleet's
    said = cli("checkpoint", "fork", run, ids[2], "--branch", "b", "--edit", "sort=owls")
    assert (said.code, said.out) == (0, f"fork: it continues on b; runner wait {run} --branch b\n"), said.err
    assert cli("checkpoint", "resume", run, "--crew", "crew.py").error.startswith("--crew is for checkpoints in files")
    # the run itself lost nothing
    assert json.loads(fleet.runner("wait", run, "--json").stdout)["outputs"]["collect"] == "owls, hens"


def test_what_is_here_is_found_before_the_newest_run(fleet: Any, write_crew: Any, tmp_path: Path) -> None:
    """The default places of both providers of files."""
    crew = write_crew(
        """
        from runner import CheckpointConfig, Crew, SqliteProvider, Task
        here = CheckpointConfig(location="./.checkpoints.db", provider=SqliteProvider())
        crew = Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=here)
        if __name__ == "__main__":
            crew.kickoff()
        """
    )
    assert "no run yet" in fleet.runner("checkpoint", "list", cwd=crew.parent).stderr
    subprocess.run([sys.executable, crew], cwd=crew.parent, check=True)
    [kept] = json.loads(fleet.runner("checkpoint", "list", "--json", cwd=crew.parent).stdout)
    assert kept["id"] == SqliteProvider().latest(str(crew.parent / ".checkpoints.db")).id
    (crew.parent / ".checkpoints").mkdir()  # where flows keep their states, perhaps
    assert json.loads(fleet.runner("checkpoint", "list", "--json", cwd=crew.parent).stdout) == [kept]


def test_a_run_may_be_named_by_the_key_it_was_submitted_with(fleet: Any, client: Client, write_crew: Any) -> None:
    crew = write_crew(
        """
        from runner import CheckpointConfig, Crew, Task
        first = Task(name="a", run=lambda ctx: "A", output_file="a.txt")
        asks = Task(name="b", run=lambda ctx: "B", human_input=True)
        crew = Crew(tasks=[first, asks], checkpoint=True)
        """
    )
    fleet.start("--concurrency", "1")
    key = "nightly 2026"

    def say(*words: str) -> Any:
        return fleet.runner(*words, cwd=crew.parent)

    assert say("submit", str(crew), "--id", key, "--detach").returncode == 0
    assert say("wait", key).returncode == 5
    run_id = json.loads(say("show", key, "--json").stdout)["run_id"]
    [kept] = json.loads(say("checkpoint", "list", key, "--json").stdout)
    assert json.loads(say("files", key, "--json").stdout)["run_id"] == run_id
    assert "task_completed" in say("events", key).stdout
    assert say("answer", key, "--text", "").returncode == 0
    assert say("resume", key).returncode == 0
    assert say("fork", key, "--branch", "x", "--edit", "a=other", "--detach").returncode == 0
    assert say("diff", key, "main", "x").returncode == 0
    assert kept["id"] in say("checkpoint", "show", key, kept["id"]).stdout
    assert f"of run {run_id} is completed" in say("cancel", key, "--branch", "x").stderr
    assert client.run(key).id == client.fork(key, branch="y").id == run_id
    assert [one.branch for one in client.checkpoints(key, "main")]
    missing = say("show", "never submitted")
    assert (missing.returncode, "there is no run never submitted" in missing.stderr) == (2, True)
