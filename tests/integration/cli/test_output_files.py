"""Files of a run are written below the folder where they were asked for, whatever the run says."""

import json
from pathlib import Path
from typing import Any

CREW = """
    from runner import Crew, Process, Task

    def text(ctx):
        return "of the run"

    crew = Crew(process=Process.graph, tasks=[
        Task(name="good", run=text, output_file="deep/good.txt"),
        Task(name="absolute", run=text, output_file={absolute!r}),
        Task(name="above", run=text, output_file="../../above.txt"),
        Task(name="given", run=text, output_file="{{where}}/given.txt"),
        Task(name="linked", run=text, output_file="link/linked.txt"),
    ])
"""


def test_nothing_is_written_outside(cli: Any, fleet: Any, write_crew: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    absolute = outside / "absolute.txt"
    crew = write_crew(CREW.format(absolute=str(absolute)))
    Path("link").symlink_to(outside)
    fleet.start("--concurrency", "1")
    # submit writes what belongs here, and says of the rest, in a line each, that it does not
    said = cli("submit", crew, "--input", "where=../../..", "--json")
    assert said.code == 1
    run = json.loads(said.out)["run_id"]
    assert json.loads(said.out)["status"] == "completed"
    refused = {
        'error: the output file "../../above.txt" is not written: it points outside the folder',
        'error: the output file "../../../given.txt" is not written: it points outside the folder',
        'error: the output file "link/linked.txt" is not written: link is a link',
    }
    lines = [line for line in said.err.splitlines() if line.startswith("error:")]
    assert {line.partition("; its text")[0] for line in lines} == refused
    assert Path("deep/good.txt").read_text() == "of the run"
    below = Path(str(absolute).lstrip("/"))  # an absolute one as one below, as CrewAI has it
    assert below.read_text() == "of the run"
    # and so do `wait` and `files --out`
    for arguments, folder in ((("wait", run), Path()), (("files", run, "--out", "x/y"), Path("x/y"))):
        Path("deep/good.txt").unlink(missing_ok=True)
        (folder / "x/y/link").parent.mkdir(parents=True, exist_ok=True)
        Path("x/y").mkdir(parents=True, exist_ok=True)
        Path("x/y/link").unlink(missing_ok=True)
        Path("x/y/link").symlink_to(outside)
        said = cli(*arguments, "--json")
        assert said.code == 1
        lines = [line for line in said.err.splitlines() if line.startswith("error:")]
        assert {line.partition("; its text")[0] for line in lines} == refused
        assert (folder / "deep/good.txt").read_text() == "of the run"
    files = {one["task"]: one for one in json.loads(said.out)["files"]}
    assert {task for task, one in files.items() if "refused" in one} == {"above", "given", "linked"}
    assert {task for task, one in files.items() if "written" in one} == {"good", "absolute"}
    # nothing came out anywhere
    assert not list(outside.iterdir())
    names = {"absolute.txt", "above.txt", "given.txt", "linked.txt"}
    found = {path for path in tmp_path.rglob("*.txt") if path.name in names}
    assert {path.name for path in found} == {"absolute.txt"}
    assert all(path.is_relative_to(Path.cwd()) for path in found)
