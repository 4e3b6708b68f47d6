"""``runner checkpoint list`` where parents were pruned."""

import json
from typing import Any

from runner.providers.json import JsonProvider


def read_json(said) -> Any:
    """The one JSON value on stdout, whatever was said of what went on."""
    assert said.code == 0, said
    return json.loads(said.out)


def test_a_run_says_which_parents_were_pruned(cli, fleet, write_crew):
    # Given a run that keeps two of its three checkpoints, and a fork of the newest
    crew = write_crew("""
        from runner import Crew, Task
        crew = Crew(tasks=[Task(name=one, run=lambda ctx: "done") for one in ("a", "b", "c")])
    """)
    fleet.start("--concurrency", "1")
    run_id = read_json(cli("submit", crew, "--max-checkpoints", "2", "--json"))["run_id"]
    first, second = read_json(cli("checkpoint", "list", run_id, "--json"))
    cli("fork", run_id, "--checkpoint", first["id"], "--branch", "other", "--json")
    # Then the parent of the oldest is shown as pruned, and no other: not that of a fork, which is on another branch
    rows = [line.split() for line in cli("checkpoint", "list", run_id).out.splitlines()[1:]]
    assert [row[0] for row in rows if row[-1] == "pruned"] == [first["id"]]
    assert [row[-1] for row in rows if row[0] == second["id"]] == [first["id"]]
    [row] = [line.split() for line in cli("checkpoint", "list", run_id, "--branch", "other").out.splitlines()[1:]]
    assert row[-1] == first["id"]


def test_files_whose_parent_is_not_there(cli, tmp_path):
    # Given two checkpoints of which the first is pruned, and a fork of the second
    provider, where = JsonProvider(), str(tmp_path / "kept")
    first = provider.extract_id(provider.checkpoint("{}", where))
    second = provider.extract_id(provider.checkpoint("{}", where, parent_id=first))
    provider.checkpoint("{}", where, parent_id=second, branch="other")
    provider.prune(where, 1, branch="main")
    # Then that of the second is shown as pruned, and that of the fork is not, though it is on another branch
    ends = [line.split()[-2:] for line in cli("checkpoint", "list", where).out.splitlines()[1:]]
    assert ends == [[first, "pruned"], ["B", second]]
    assert cli("checkpoint", "list", where, "--branch", "other").out.split()[-2:] == ["B", second]


def test_a_name_that_nothing_has_and_a_url_by_any_of_its_names(cli):
    missing = {
        "nowhere": "there is no directory, file or run nowhere",
        "nowhere://at/all": "no provider is installed for locations that begin with nowhere://: install the package "
        "that adds it, or give a directory, a database file or a Redis URL",
    }
    for where, why in missing.items():
        for verb in ("list", "show"):
            said = cli("checkpoint", verb, where)
            assert (said.code, said.error) == (2, why)
    said = cli("checkpoint", "list", "valkey://127.0.0.1:1/0")
    assert (said.code, "valkey://127.0.0.1:1/0 " in said.error) == (4, True), said
