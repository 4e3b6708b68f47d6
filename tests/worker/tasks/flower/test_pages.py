"""What Flower shows of a crew at work: names and ids, and nothing that was said or is secret."""

import html
import json
import os
import re
import signal
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from runner.client import Client
from runner.providers.redis.keys import served

SECRET = "marker-7f3a"
REDIS_PASSWORD = "s3cret"  # a part of it that looks the same in a URL
CREW = f"""
    from runner import Crew, Task

    def collect(ctx):
        ctx.log("said {SECRET}")
        return {{"found": ctx.step("fetch", lambda: "step {SECRET} " + ctx.inputs["key"])}}

    def write(ctx):
        return "output {SECRET} " + ctx.outputs["collect it"].raw

    def explode(ctx):
        raise ValueError("api_key={SECRET}")

    def stay(ctx):
        if ctx.attempt == 1:
            open(ctx.inputs["begun"], "w").close()
            import time
            time.sleep(600)  # until it is killed
        return "taken over"

    def shake(ctx):
        return ctx.attempt // (ctx.attempt - 1)

    stays = Crew(name="stays", tasks=[Task(name="stay", run=stay)])
    shaky = Crew(name="shaky", tasks=[Task(name="shake", run=shake, max_retries=1, retry_delay=0)])
    good = Crew(name="report", tasks=[
        Task(name="collect it", run=collect), Task(name="write <b>'s \\"größe\\" / up?", run=write)])
    bad = Crew(name="bad", tasks=[Task(name="explode", run=explode)])
"""
NAMES = {"report.collect it", 'report.write <b>\'s "größe" / up?', "bad.explode"}
TABLE = (
    "/tasks/datatable?draw=1&start=0&length=50&order%5B0%5D%5Bcolumn%5D=0&order%5B0%5D%5Bdir%5D=asc"
    "&columns%5B0%5D%5Bdata%5D=name"
)
PAGES = ("/", "/workers", "/workers?json=1", "/tasks", TABLE, "/broker")
APIS = ("/api/workers?refresh=1", "/api/tasks", "/api/task/types", "/api/queues/length")
OPEN = ("/healthcheck", "/metrics")


@dataclass
class Watched:
    """Flower, and the jobs it was to see: by the older worker and by the younger one."""

    flower: Any
    older: Any
    younger: Any
    runs: dict[str, list[str]]

    def jobs(self, *runs: str) -> list[dict[str, Any]]:
        """Of these runs; else of all that the tests look at together."""
        wanted = runs or [run for of_queue in self.runs.values() for run in of_queue]
        found = json.loads(self.flower.get("/api/tasks")[1]).values()
        return [job for job in found if any(run in job["uuid"] for run in wanted)]

    def workers(self) -> list[str]:
        return [worker["hostname"] for worker in json.loads(self.flower.get("/workers?json=1")[1])["data"]]

    def pages(self) -> list[str]:
        """Everything there is to look at."""
        jobs = [quote(job["uuid"], safe="") for job in self.jobs()]
        return [
            *(PAGES + APIS + OPEN),
            *(f"/worker/{worker}" for worker in self.workers()),
            *(f"/task/{job}" for job in jobs),
            *(f"/api/task/info/{job}" for job in jobs),
        ]


@pytest.fixture(scope="module")
def watched(processes, tmp_path_factory) -> Iterator[Watched]:
    crew = tmp_path_factory.mktemp("crew") / "crew.py"
    crew.write_text(textwrap.dedent(CREW))
    older = processes.runner("older", "worker", "--concurrency", "1", "--queue", "older")
    older.says("ready")
    flower = processes.flower(RUNNER_FLOWER_AUTH="me:open, sesame")
    older.says("Events of group {task} enabled by remote")  # so Flower has said that it watches
    younger = processes.runner("younger", "worker", "--concurrency", "1", "--queue", "younger")
    younger.says("ready")
    processes.eventually(lambda: "@" in flower.get("/workers?json=1")[1], why="Flower hears the older worker")
    runs: dict[str, list[str]] = {}
    with Client(processes.environment["RUNNER_REDIS_URL"]) as client:
        handles = [
            client.submit(f"{crew}:{name}", {"key": SECRET}, queue=queue)
            for queue in ("older", "younger")
            for name in ("good", "bad")
        ]
        for handle, queue in zip(handles, ("older", "older", "younger", "younger"), strict=True):
            handle.wait(timeout=60)
            runs.setdefault(queue, []).append(handle.id)
    one = Watched(flower, older, younger, runs)
    processes.eventually(
        lambda: len(found := one.jobs()) == 6 and all(job["succeeded"] or job["failed"] for job in found),
        why="Flower shows six jobs that ended",
    )
    return one


def test_every_job_shows_with_a_readable_name_and_its_ids(watched: Watched) -> None:
    assert {job["name"] for job in watched.jobs()} == NAMES
    for job in watched.jobs():
        task = job["name"].partition(".")[2]
        run = next(run for runs in watched.runs.values() for run in runs if run in job["uuid"])
        assert job["kwargs"] == f"{{'run': '{run}', 'branch': 'main', 'task': '{task}', 'attempt': 1}}"
        assert job["args"] == "()"


def test_the_older_worker_was_asked_and_the_younger_one_knew(watched: Watched) -> None:
    by_run = {job["kwargs"].split("'")[3]: job["worker"] for job in watched.jobs()}
    assert {run for runs in watched.runs.values() for run in runs} == set(by_run)
    assert len({by_run[run] for run in watched.runs["older"]}) == 1
    assert {by_run[run] for run in watched.runs["older"]} != {by_run[run] for run in watched.runs["younger"]}


def test_no_page_shows_what_was_said_or_is_secret(watched: Watched) -> None:
    for page in watched.pages():
        status, text = watched.flower.get(page)
        assert status == 200, (page, text)
        assert SECRET not in text, page
        assert REDIS_PASSWORD not in text, page


def test_a_failed_task_shows_where_its_crew_raised(watched: Watched) -> None:
    """Files, lines and functions; what was said, masked; no code, and no frame of ours."""
    job = next(job for job in watched.jobs() if job["name"] == "bad.explode")
    page = html.unescape(watched.flower.get("/task/" + quote(job["uuid"], safe=""))[1])
    assert job["state"] == "FAILURE"
    assert "ValueError: api_key=*** (crew.py:" in page
    assert re.search(r'File "crew.py", line \d+, in explode\s+ValueError: api_key=\*\*\*', page), page
    assert "raise ValueError" not in page
    assert "jobs.py" not in page


def test_pages_escape_names(watched: Watched) -> None:
    job = next(job for job in watched.jobs() if "<b>" in job["name"])
    text = watched.flower.get("/task/" + quote(job["uuid"], safe=""))[1]
    assert "write &lt;b&gt;" in text
    assert "write <b>" not in text


def test_the_broker_page_counts_the_queues_of_a_socket(watched: Watched, eventually: Any) -> None:
    def page() -> str:
        watched.flower.get("/workers?refresh=1")  # the younger one came after Flower had asked
        text: str = watched.flower.get("/broker")[1]
        return text if "older" in text and "younger" in text else ""

    text = eventually(page, why="Flower has asked both workers for their queues")
    assert "older" in text
    assert "younger" in text
    lengths = json.loads(watched.flower.get("/api/queues/length")[1])["active_queues"]
    assert lengths == [{"name": one, "messages": 0} for one in sorted([*served("older"), *served("younger")])]


def test_the_worker_page_shows_its_broker_without_the_password(watched: Watched) -> None:
    for worker in watched.workers():
        assert "redis+socket://:***@" in watched.flower.get(f"/worker/{worker}")[1]


def test_logs_at_info_hold_no_secret(watched: Watched) -> None:
    for part in (watched.older, watched.younger, watched.flower):
        assert SECRET not in part.printed()
        assert REDIS_PASSWORD not in part.printed()


def test_without_the_password_there_is_nothing_but_health_and_metrics(watched: Watched) -> None:
    for page in watched.pages():
        expected = 200 if page in OPEN else 401
        for auth in (None, "me:wrong", "open, sesame"):
            status, text = watched.flower.get(page, auth)
            assert status == expected, page
            assert expected == 200 or "report" not in text


def test_the_password_is_on_no_command_line(watched: Watched) -> None:
    line = Path(f"/proc/{watched.flower.process.pid}/cmdline").read_text()
    assert "sesame" not in line
    assert REDIS_PASSWORD not in line


def test_an_attempt_that_is_followed_by_another_is_no_success(watched: Watched, processes, tmp_path: Path) -> None:
    crew = tmp_path / "crew.py"
    crew.write_text(textwrap.dedent(CREW))
    with Client(processes.environment["RUNNER_REDIS_URL"]) as client:
        run = client.submit(f"{crew}:shaky", {"key": SECRET}, queue="older")
        assert run.wait(timeout=60).result == "2"

    def states() -> list[str]:
        return [job["state"] for job in sorted(watched.jobs(run.id), key=lambda job: job["uuid"])]

    processes.eventually(lambda: states() == ["RETRY", "SUCCESS"], why="Flower shows a retry and a success")
    # And its page says why
    first = min(job["uuid"] for job in watched.jobs(run.id))
    page = html.unescape(watched.flower.get("/task/" + quote(first, safe=""))[1])
    assert "ZeroDivisionError" in page
    assert re.search(r'File "crew.py", line \d+, in shake', page), page


def test_it_prints_its_address_and_nothing_else_and_ends_clean(watched: Watched, processes) -> None:
    """Another one: any order of tests is well. Events cost speed, so workers are told to send no more at its end."""
    other = processes.flower(RUNNER_FLOWER_AUTH="me:open, sesame")
    for page in PAGES + APIS + OPEN:
        assert other.get(page)[0] == 200, page
    other.process.terminate()
    assert other.ended() == 0
    assert other.printed() == f"Flower at {other.url}\n"
    watched.older.says("Events of group {task} disabled by remote")


def test_what_a_worker_did_when_it_was_killed_does_not_stay_as_begun(watched: Watched, processes, tmp_path) -> None:
    """The supervisor says what a worker that is gone cannot."""
    crew, begun = tmp_path / "crew.py", tmp_path / "begun"
    crew.write_text(textwrap.dedent(CREW))
    killed = processes.runner("killed", "worker", "--concurrency", "1", "--queue", "killed")
    with Client(processes.environment["RUNNER_REDIS_URL"]) as client:
        run = client.submit(f"{crew}:stays", {"begun": str(begun)}, queue="killed")
        processes.eventually(begun.exists, why="the task has begun")
        name = processes.eventually(lambda: watched.jobs(run.id), why="Flower shows the job")[0]["worker"]
        os.killpg(killed.process.pid, signal.SIGKILL)
        processes.runner("next", "worker", "--concurrency", "1", "--queue", "killed")
        assert run.wait(timeout=60).result == "taken over"

    def states() -> list[str]:
        return [job["state"] for job in sorted(watched.jobs(run.id), key=lambda job: job["uuid"])]

    processes.eventually(lambda: states() == ["RETRY", "SUCCESS"], why="Flower shows that it was taken over")
    page = html.unescape(watched.flower.get(f"/task/{run.id}.main.stay.1")[1])
    assert f"Interrupted('worker {name.partition('@')[0]} is gone: its connection closed')" in page
    assert f"runner show {run.id}" in page

    def alive() -> dict[str, bool]:
        workers = json.loads(watched.flower.get("/workers?json=1")[1])["data"]
        return {worker["hostname"]: worker["status"] for worker in workers}

    assert alive().get(name) is not True
    assert any(alive().values())
