"""Calls of models that go past the journal are counted by where they went, and nothing of what they said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.client.handle import unrecorded_in
from runner.testing import ModelServer, eventually
from runner.testing.in_process import InProcess

from ...integration.llm.wire_server import Reply, WireServer

CREW = """
import json, threading, urllib.request
import requests
from runner import Crew, Task

URL = {url!r} + "/chat/completions"


def post(url, **said):
    request = urllib.request.Request(url, json.dumps(said).encode(), {{"Authorization": "Bearer sk-secret"}})
    try:
        return urllib.request.urlopen(request).status
    except OSError:
        return 0


def past(ctx):
    question = [{{"role": "user", "content": "a question"}}]
    post(URL + "?key=sk-secret", model="gpt-4o", messages=question)
    thread = threading.Thread(target=post, args=(URL,), kwargs={{"model": "gpt-4o", "messages": question}})
    thread.start()
    thread.join()
    post(URL, messages=question)
    post({url!r} + "/orders", model="gpt-4o")
    return "past"


def through(ctx):
    requests.post(URL, json={{"model": "gpt-4o", "messages": []}})
    return "through"


crew = Crew(tasks=[Task(name="past", run=past), Task(name="through", run=through)])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_what_no_transport_recorded_is_counted_by_host_and_path(
    pool: str, fleet: Any, client: Client, write_crew: Callable[..., Path]
) -> None:
    with ModelServer() as models:
        fleet.start("--concurrency", "1", "--pool", pool)
        handle = client.submit(write_crew(CREW.format(url=models.url)))
        result = handle.wait(120)
        place = models.url.removeprefix("http://") + "/chat/completions"
    assert (result.status, result.ledger["paid"], models.requests) == ("completed", 1, 4), result.error
    told = [event.fields for event in handle.events() if event.type == "calls_unrecorded"]
    assert [(fields["task"], fields["text"]) for fields in told] == [("past", f"1 to {place}")] * 2
    assert handle.calls_unrecorded() == {place: 2}
    if pool == "prefork":
        shown, doctor = fleet.runner("show", handle.id), fleet.runner("doctor")
        assert f"calls of models past the journal, made again after a restart: 2 to {place}" in shown.stdout
        assert f"calls of models past the journal: 2 to {place}, in the newest 1 run" in doctor.stdout
        assert json.loads(fleet.runner("show", handle.id, "--json").stdout)["calls_unrecorded"] == {place: 2}


def test_what_a_task_that_fails_made_is_counted_too(write_crew: Callable[..., Path], tmp_path: Path) -> None:
    with ModelServer() as models:
        code = CREW.format(url=models.url).replace('return "past"', "raise ValueError('after it')")
        here = InProcess(tmp_path / "cache")
        run = here.submit(write_crew(code))
        here.work()
    place = models.url.removeprefix("http://") + "/chat/completions"
    assert unrecorded_in(here.runs.events(run)) == {place: 2}


KILLED = """
import http.client, json, multiprocessing
from runner import Crew, Task
from urllib.parse import urlsplit

BODY = json.dumps({{"model": "gpt-4o", "messages": [{{"role": "user", "content": "it"}}]}}).encode()


def ask():
    for _ in range(3):
        connection = http.client.HTTPConnection(urlsplit({url!r}).netloc)
        connection.request("POST", "/v1/chat/completions", BODY, {{"Content-Type": "application/json"}})
        assert connection.getresponse().status == 200


def past(ctx):
    if {forks}:
        process = multiprocessing.get_context("fork").Process(target=ask)
        process.start()
        process.join()
    else:
        ask()
    return "past"


crew = Crew(tasks=[Task(name="past", run=past)])
"""


@pytest.mark.parametrize(
    ("pool", "forks"), [("prefork", False), ("threads", False), ("shared", False), ("prefork", True), ("threads", True)]
)
def test_what_a_killed_process_made_is_counted(
    pool: str, forks: bool, fleet: Any, client: Client, write_crew: Callable[..., Path]
) -> None:
    """It is noted before it leaves: of a worker that is killed with one in flight, all are."""
    with WireServer() as models:
        models.reply = lambda number: Reply(hangs=number == 2)
        worker = fleet.start("--concurrency", "1", "--pool", pool)
        handle = client.submit(write_crew(KILLED.format(url=models.url, forks=forks)))
        eventually(lambda: len(models.log) == 2, within=100)
        worker.kill_group()
        fleet.start("--concurrency", "1", "--pool", pool)
        result = handle.wait(120)
        place = models.chat.removeprefix("http://")
        assert (result.status, len(models.log)) == ("completed", 5), result.error
        assert handle.calls_unrecorded() == {place: 5}


FORKED = """
import asyncio, multiprocessing
import aiohttp, httpx, requests
from runner import Crew, Task

URL = {url!r} + "/chat/completions"
ASKED = {{"model": "gpt-4o", "messages": [{{"role": "user", "content": "it"}}]}}


async def with_aiohttp():
    async with aiohttp.ClientSession() as session:
        async with session.post(URL, json=ASKED) as said:
            return said.status


def one(way):
    if way == "aiohttp":
        return asyncio.run(with_aiohttp())
    return {{"requests": requests, "httpx": httpx}}[way].post(URL, json=ASKED).status_code


def forks(ctx):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(one, ["requests", "httpx", "aiohttp"])
    return str([*found, one("requests")])


crew = Crew(tasks=[Task(name="forks", run=forks), Task(name="after", run=lambda ctx: str(one("httpx")))])
"""


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_processes_that_a_task_forks_are_in_no_task_and_their_calls_are_counted(
    pool: str, fleet: Any, client: Client, write_crew: Callable[..., Path]
) -> None:
    with ModelServer() as models:
        fleet.start("--concurrency", "1", "--pool", pool)
        handle = client.submit(write_crew(FORKED.format(url=models.url)))
        result = handle.wait(120)
        place = models.url.removeprefix("http://") + "/chat/completions"
    assert (result.status, models.requests) == ("completed", 5), result.error
    assert result.outputs == {"forks": "[200, 200, 200, 200]", "after": "200"}
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (2, 0)
    assert handle.calls_unrecorded() == {place: 3}
