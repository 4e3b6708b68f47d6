"""What crashes leave behind on a worker's machine is taken away by the next worker."""

import os
from pathlib import Path
from typing import Any

from runner.client import Client
from runner.testing import Fleet, RedisServer, eventually


def test_files_of_killed_workers_in_the_temporary_folder(server: RedisServer, fleet: Fleet, tmp_path: Path) -> None:
    def left() -> set[str]:
        return {path.name for path in tmp_path.glob("runner-out-*")}

    fleet.start(TMPDIR=str(tmp_path)).kill_group()
    first = left()
    assert len(first) == 1
    server.flush()  # nobody hands back what it had
    fleet.start(TMPDIR=str(tmp_path))
    eventually(lambda: len(left()) == 1 and not left() & first)


def test_bundles_over_the_limit(server: RedisServer, client: Client, fleet: Fleet, write_crew: Any) -> None:
    bundles = fleet.folder / "cache/bundles"
    old, half = bundles / ("0" * 64), bundles / ".unpack-killed"
    for folder in (old, half):
        folder.mkdir(parents=True)
        (folder / "crew.py").write_text("x")
        os.utime(folder, (1, 1))
    fleet.start("--concurrency", "1", RUNNER_CACHE_LIMIT="0")
    eventually(lambda: not old.exists() and not half.exists())
    crew = write_crew("from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=lambda ctx: 'done')])")
    assert client.submit(crew).wait(60).result == "done"
    assert len(list(bundles.iterdir())) == 1
