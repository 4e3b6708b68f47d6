"""Timeouts at random moments around the answers: what is counted as paid, or in doubt, is what was asked for."""

import collections
import json
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runner.client import Client

pytestmark = [pytest.mark.soak, pytest.mark.timeout(170)]

TIMEOUT, MANY = 1.0, 6
EARLY = (-0.2, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2)  #: seconds before the timeout, in which an answer comes


class Service(ThreadingHTTPServer):
    """A model that answers about when the task that asks it is timed out, and counts what it was asked."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.asked = collections.Counter[str]()
        self.lock = threading.Lock()
        self.random = random.Random(5)


class Request(BaseHTTPRequestHandler):
    """One request to it."""

    server: Service

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = asked["messages"][-1]["content"]
        with self.server.lock:
            self.server.asked[said] += 1
            is_first, early = self.server.asked[said] == 1, self.server.random.choice(EARLY)
        time.sleep(max(0.0, float(said.split()[1]) - time.time() - early) if is_first else 0.05)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        about = {"id": "x", "created": 1, "model": "m"}
        if asked.get("stream"):
            for n, word in enumerate("abc"):
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": "stop" if n == 2 else None}
                part = about | {"object": "chat.completion.chunk", "choices": [choice]}
                self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")
                time.sleep(0.02)
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": "abc"}, "finish_reason": "stop"}
            answer = about | {"object": "chat.completion", "choices": [choice]}
            self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


CREW = """
    import asyncio, json, openai, urllib.request

    MODEL = {{"base_url": {url!r}, "api_key": "k", "max_retries": 0}}

    def post(said):
        data = json.dumps({{"messages": [{{"role": "user", "content": said}}]}}).encode()
        with urllib.request.urlopen({url!r} + "/other", data=data, timeout=60) as answer:
            return json.loads(answer.read())["choices"][0]["message"]["content"]

    async def apost(said):
        return await asyncio.to_thread(post, said)

    def said(ctx):
        return f"{{ctx.task.name}} {{ctx.step('at', lambda: time.time() + {timeout})}}"

    def asked(ctx):
        return {{"model": "m", "messages": [{{"role": "user", "content": said(ctx)}}]}}

    def step(ctx):
        return ctx.step("call", post, said(ctx))

    def mapped(ctx):
        return ctx.map(post, [said(ctx)])[0]

    async def to_thread(ctx):
        return await ctx.step("call", apost, said(ctx))

    def client(ctx):
        return openai.OpenAI(**MODEL).chat.completions.create(**asked(ctx)).choices[0].message.content

    def stream(ctx):
        parts = openai.OpenAI(**MODEL).chat.completions.create(stream=True, **asked(ctx))
        return "".join(part.choices[0].delta.content for part in parts)

    async def aclient(ctx):
        answer = await openai.AsyncOpenAI(**MODEL).chat.completions.create(**asked(ctx))
        return answer.choices[0].message.content

    async def astream(ctx):
        parts = await openai.AsyncOpenAI(**MODEL).chat.completions.create(stream=True, **asked(ctx))
        return "".join([part.choices[0].delta.content async for part in parts])

    about = {{"pool": "{pool}", "timeout": {timeout}, "max_retries": 8, "retry_delay": 0.01}}
    crew = Crew(process=Process.graph, tasks=[
        Task(name=f"{{run.__name__}}{{n}}", run=run, **about) for run in ({runs}) for n in range({many})
    ])
"""


@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize("runs", ["step, mapped, to_thread", "client, stream", "aclient, astream"])
def test_the_count_is_the_services_own(
    runs: str, pool: str, fleet: Any, client: Client, crew_of: Any, service: Service
) -> None:
    fleet.start("--concurrency", "6", "--pool", "shared" if pool == "thread" else "prefork")
    url = f"http://127.0.0.1:{service.server_address[1]}"
    crew = crew_of(CREW.format(url=url, pool=pool, runs=runs, timeout=TIMEOUT, many=MANY))
    result = client.submit(crew).wait(150)
    assert (result.status, set(result.outputs.values())) == ("completed", {"abc"})
    asked, ledger, tasks = service.asked, result.ledger, len(result.outputs)
    assert (len(asked), ledger["paid"]) == (tasks, 2 * tasks)  # with the step that says when
    assert sum(asked.values()) <= tasks + ledger["in_doubt"]
    if pool == "thread":  # in which nothing breaks into a call that blocks
        assert all(many == 1 for said, many in asked.items() if said.startswith(("step", "client", "stream")))
