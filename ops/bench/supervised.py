"""`runner supervisor`, alone and leading."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from servers import Server
from waiting import until

from runner.providers.redis.connection import connect
from runner.providers.redis.workers import Workers


@contextlib.contextmanager
def leading_supervisor(server: Server) -> Iterator[None]:
    """For as long as the context lasts."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
    with (server.folder / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner", "supervisor"],
            env={**kept, "RUNNER_REDIS_URL": server.url}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with contextlib.closing(connect(server.url)) as client:
            until(lambda: Workers(client).leader().startswith("supervisor-"), "a supervisor leads")
        yield
    finally:
        process.terminate()
        process.wait(10)
