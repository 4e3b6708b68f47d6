"""What crashes leave behind on a worker's machine is taken away by the next worker."""

from pathlib import Path

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
