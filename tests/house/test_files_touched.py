"""In how many files of ours functions are called: by a job on a warm worker, and by a submission from a warm process.

Who looks for what a job does has to read so many. A figure is raised by a line in a diff.
"""

import gc
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.core.states import RunStatus
from runner.providers.redis.keys import queue_of
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer

FOR_A_JOB = 32
FOR_A_SUBMISSION = 21  #: the client that waits, for people, is in a file of its own

CREW = """
    from runner import Crew, Task

    crew = Crew(tasks=[Task(name="all", run=lambda ctx: ctx.step("one", int, 1) and "done")])
    """


def touched(root: Path, act: Callable[[], object]) -> list[str]:
    """The files of ours with a function that is called meanwhile, on this thread."""
    codes = set()

    def see(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code.co_filename)

    gc.disable()  # what listens to it is called, too
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    files = {Path(name).resolve() for name in codes if not name.startswith("<")}
    ours = [path.relative_to(root).as_posix() for path in files if path.is_relative_to(root)]
    return sorted(name for name in ours if name.startswith(("runner/", "tasks/", "providers/")))


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    (tmp_path / "crew").mkdir()
    (tmp_path / "crew/crew.py").write_text(textwrap.dedent(CREW))
    return tmp_path / "crew/crew.py"


def test_a_job_and_a_submission_touch_few_files(
    root: Path, server: RedisServer, redis: Redis, crew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"REDIS_URL": server.url, "CACHE_DIR": str(tmp_path / "cache"), "WORKER_ID": "w0"}.items():
        monkeypatch.setenv(f"RUNNER_{name}", value)
    from runner.tasks import jobs

    def job() -> None:
        jobs.process().begin_slice("")  # as the trace of its message does
        jobs.job(**body[1])

    monkeypatch.setattr(jobs, "_process", None)
    with Client(server.url) as client:
        Workers(redis).beat("w0", 10**9, "{}")
        for _ in range(2):
            submitted = touched(root, lambda: client.submit(crew, queue="jobs"))
            body = json.loads(json.loads(redis.rpop(queue_of("jobs")))["body"])
            done = touched(root, job)
        assert {run.status for run in client.runs()} == {RunStatus.completed}
    assert len(submitted) <= FOR_A_SUBMISSION, submitted
    assert len(done) <= FOR_A_JOB, done
