"""The access list in docs/operations.md suffices for everything, and Redis never had to refuse."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis import Redis

from ..support import interpreters


def test_the_documented_user_can_do_all_that_is_needed(
    root: Path, own_fleet: Any, small_crew: Path, eventually: Callable[..., Any]
) -> None:
    (line,) = re.findall(r"^user (runner .*)$", (root / "docs/operations.md").read_text(), re.MULTILINE)
    with Redis.from_url(own_fleet.url, decode_responses=True) as admin:
        admin.execute_command("ACL", "SETUSER", *line.replace("PASSWORD", "pw").split())
        url = own_fleet.url.replace("unix://", "unix://runner:pw@")
        log = own_fleet.folder / "flower.log"
        with log.open("wb") as out:
            environment = own_fleet.environment(RUNNER_REDIS_URL=url)
            flower = interpreters.started(
                "-m", "runner", "flower", "--port", "0", env=environment, stdout=out, stderr=out
            )
        try:
            eventually(lambda: "Flower at" in log.read_text(), why="Flower listens")
            worker = own_fleet.start("--concurrency", "1", RUNNER_REDIS_URL=url)
            done = own_fleet.runner("submit", str(small_crew), "--json", timeout=40, RUNNER_REDIS_URL=url)
            assert json.loads(done.stdout)["result"] == "one, two", done.stderr
            assert own_fleet.runner("doctor", RUNNER_REDIS_URL=url).returncode == 0
            worker.terminate()
            assert worker.process.wait(30) == 0
        finally:
            flower.terminate()
            assert flower.wait(30) == 0
        assert [(entry["username"], entry["object"]) for entry in admin.acl_log()] == []
        assert log.read_text().count("\n") == 1, log.read_text()
