"""Does the real CrewAI still checkpoint into Redis with our provider? Not one of the tests: it needs CrewAI (1 GB).

    python3 -m venv venv && venv/bin/pip install . crewai
    venv/bin/python ops/compat/crewai_provider.py

It uses ``RUNNER_REDIS_URL``, or starts a server; the model is an HTTP server in here. It ends with 0 if all is as it
should be, and says what it saw. Run it when CrewAI has a new release.
"""

import asyncio
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

KEY = "sk-this-is-not-to-be-stored"
ANSWER = "word " * 200

requests: list[int] = []


class Model(http.server.BaseHTTPRequestHandler):
    """Answers every chat with the same text, and counts."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requests.append(len(asked["messages"]))
        text = f"answer {len(requests)} {uuid.uuid4()} {ANSWER}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def redis_url(folder: str) -> str:
    """The Redis that is named, else one of our own, which ends with this process's folder."""
    if os.environ.get("RUNNER_REDIS_URL"):
        return os.environ["RUNNER_REDIS_URL"]
    from redis import Redis

    from runner.client.embedded import find_binary

    socket = f"{folder}/r.sock"
    process = subprocess.Popen([find_binary(), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder],
                               stdout=subprocess.DEVNULL)  # fmt: skip
    servers.append(process)
    for _ in range(200):
        try:
            Redis(unix_socket_path=socket).ping()
            break
        except Exception:
            time.sleep(0.05)
    return f"unix://{socket}"


servers: list["subprocess.Popen[bytes]"] = []


def check(what: str, holds: bool, saw: Any = "") -> None:
    print(f"{'ok  ' if holds else 'NOT '} {what}" + (f": {saw}" if saw != "" else ""), flush=True)
    if not holds:
        raise SystemExit(1)


def main(folder: str) -> None:
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    os.environ.update(
        OPENAI_BASE_URL=f"http://127.0.0.1:{model.server_port}/v1", OPENAI_API_KEY=KEY, HOME=folder,
        CREWAI_STORAGE_DIR=f"{folder}/store", CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false",
        CREWAI_DISABLE_VERSION_CHECK="true", OTEL_SDK_DISABLED="true", CREWAI_DISABLE_TRACKING="true",
    )  # fmt: skip
    url = redis_url(folder)
    os.chdir(folder)
    import crewai
    from crewai import Agent, CheckpointConfig, Crew, Task
    from crewai.events.event_bus import crewai_event_bus as bus

    from runner.adapters.crewai.redis_provider import crewai_checkpoint_file, crewai_provider

    print(f"crewai {crewai.__version__}")
    provider = crewai_provider(url)
    run = f"run-{uuid.uuid4().hex[:8]}"

    def make(tasks: int, location: str, **config: Any) -> Crew:
        agent = Agent(role="Writer", goal="Write", backstory="b", llm="gpt-4o-mini")
        every = [Task(name=f"t{i}", description=f"Part {i}", expected_output="text", agent=agent) for i in range(tasks)]
        settings = CheckpointConfig(location=location, provider=provider, **config)
        return Crew(agents=[agent], tasks=every, checkpoint=settings)

    # Writing. CrewAI loses some checkpoints to a race of its own, so there may be less than three.
    make(3, run).kickoff()
    bus.flush()
    written = provider.checkpoints(run)
    check("checkpoints are written", 1 <= len(written) <= 3, [info.id for info in written])
    check(
        "each has the one before as its parent", [i.parent_id for i in written] == [None, *[i.id for i in written[:-1]]]
    )
    texts = [provider.from_checkpoint(info.location) for info in written]
    check("they are CrewAI's states", all(json.loads(text)["crewai_version"] == crewai.__version__ for text in texts))
    check("no key is stored", not any(KEY in text for text in texts), f"{sum(map(len, texts))} bytes of states")

    # Restoring, from one that was written in the middle, without a race.
    held: list[str] = []
    crew = make(3, run)
    crew.checkpoint = False

    def after(output: Any) -> None:
        if output.name == "t1":
            bus.runtime_state._provider = provider
            held.append(bus.runtime_state.checkpoint(run))

    crew.tasks[1].callback = after
    CheckpointConfig()  # arms CrewAI's recording
    crew.kickoff()
    bus.flush()
    middle = held[0]
    check("a checkpoint by hand is in Redis too", provider.runner_provider.find(middle).branch == "main", middle)
    # CrewAI does not restore a function: it is code.
    before = len(requests)
    again = make(3, run)
    with crewai_checkpoint_file(middle, url) as path:
        settings = CheckpointConfig(location=run, provider=provider, restore_from=path)
        settings_text = Path(path).read_text()
        Path(path).write_text(settings_text.replace('"callback": "', '"callback_was": "'))
        output = again.kickoff(from_checkpoint=settings)
    bus.flush()
    check("two tasks of three are not paid again", len(requests) - before == 1, len(requests) - before)
    check("the outputs are the stored ones", [t.name for t in output.tasks_output] == ["t0", "t1", "t2"])
    newest = provider.latest(run)
    check("the line goes on in Redis", newest.parent_id == provider.extract_id(middle), newest.location)

    # Forking.
    with crewai_checkpoint_file(middle, url) as path:
        Path(path).write_text(Path(path).read_text().replace('"callback": "', '"callback_was": "'))
        fork = Crew.fork(CheckpointConfig(location=run, provider=provider, restore_from=path), branch="exp/a")
    fork.checkpoint = CheckpointConfig(location=run, provider=provider)
    fork.kickoff()
    bus.flush()
    there = provider.checkpoints(run, "exp/a")
    check(
        "a fork has its own branch",
        bool(there) and there[0].parent_id == provider.extract_id(middle),
        [i.id for i in there],
    )

    # Async, and retention: two runs at one location.
    for _ in range(2):
        asyncio.run(make(4, f"{run}-kept", max_checkpoints=2).kickoff_async())
        bus.flush()
    kept = provider.checkpoints(f"{run}-kept")
    check("each of two runs keeps its newest two", 2 <= len(kept) <= 4, [(i.id, i.parent_id) for i in kept])
    starts = [info for info in kept if info.parent_id not in {other.id for other in kept}]
    check("and neither prunes the other", len(starts) == 2)

    # What it costs, beside CrewAI's own files.
    big = make(30, f"{run}-big")
    big.kickoff()
    bus.flush()
    from redis import Redis

    sizes = [info.size for info in provider.checkpoints(f"{run}-big")]
    with Redis.from_url(url) as client:
        memory = sum(client.memory_usage(key, samples=0) for key in client.scan_iter(f"runner:*{run}-big*"))
    print(
        f"     30 tasks: {len(sizes)} checkpoints, {sum(sizes) / 1e6:.1f} MB as files, {memory / 1e6:.2f} MB in Redis"
    )
    for location in (run, f"{run}-kept", f"{run}-big"):
        for branch in {info.branch for info in provider.checkpoints(location)}:
            provider.prune(location, 0, branch=branch)
    with Redis.from_url(url) as client:
        left = sorted(key.decode() for key in client.scan_iter(f"runner:*{run}*"))
    check("pruned to nothing, nothing is left", left == [], left)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        try:
            main(folder)
        finally:
            for server in servers:
                server.kill()
                server.wait()
    sys.stdout.flush()
    os._exit(0)  # CrewAI's threads would make it wait
