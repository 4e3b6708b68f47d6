"""Measure what a worker does until a deep agent is at its next new call: prints one Markdown table.

    python ops/bench/replay.py [--calls N ...] [--rounds N] [--json FILE]

An agent makes so many calls of a model, each with all of its conversation: 836 KB at first, 1.3 MB in the end. The
worker is killed while a call is out; another one takes the task up, replays what is recorded, and makes the call again.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import machine
from fleet import CONCURRENCY, HERE, Fleet, Worker
from servers import Server, serving

from runner.client import Client, prepare

CREW = HERE / "crews" / "deep" / "crew.py"
RESULTS = 500_000  #: characters that the tools give in all, however many calls it takes
HEAD = ("calls", "first attempt, processor time", "replay, processor time", "of the first",
        "kill to the next new call", "in the store")  # fmt: skip


@dataclass
class Row:
    """One measurement: seconds, and bytes."""

    calls: int
    first: float
    replay: float
    wall: float
    stored: int


class Models(ThreadingHTTPServer):
    """Answers at once, but holds the calls that find so many results of tools in their conversation."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrived = threading.Semaphore(0)
        self.release = threading.Event()
        self.calls, self.at, self.paid = 0, 0.0, 0

    def hold(self, calls: int) -> None:
        """From now on conversations have so many results before their last call, which is held."""
        self.release.set()
        self.calls, self.release, self.arrived = calls, threading.Event(), threading.Semaphore(0)

    def answer(self, results: int) -> bytes:
        self.paid += 1
        if results < self.calls:
            given = {"part": results, "size": RESULTS // self.calls}
            function = {"name": "fetch", "arguments": json.dumps(given)}
            said = {"content": None, "tool_calls": [{"id": f"c{results}", "type": "function", "function": function}]}
        else:
            self.at, release = time.monotonic(), self.release
            self.arrived.release()
            release.wait()
            said = {"content": "Done."}
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 200_000, "completion_tokens": 10, "total_tokens": 200_010}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4.1"}
        return json.dumps({**about, "choices": [choice], "usage": usage}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Models

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.answer(body.count(b'"tool_call_id"'))
        with contextlib.suppress(OSError):  # who asked is dead
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def busy(pids: set[int]) -> dict[int, float]:
    """The processor time of each process, in seconds."""
    found = {}
    for pid in pids:
        files = Path(f"/proc/{pid}/task").glob("*/schedstat")
        found[pid] = sum(int(file.read_text().split()[0]) for file in files) / 1e9
    return found


def stored(server: Server) -> int:
    """The bytes of all keys."""
    client = server.client()
    return sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(count=1000))


def one(server: Server, client: Client, fleet: Fleet, models: Models, calls: int) -> Row:
    """One kill."""
    fleet.fill()
    models.hold(0)
    warm = [client.submit(prepare(str(CREW))) for _ in range(CONCURRENCY * len(fleet.workers))]
    for _ in warm:  # each process has one: its clients are imported, and its code is cached
        assert models.arrived.acquire(timeout=300)
    models.hold(calls)
    for handle in warm:
        assert handle.wait(300).status == "completed"
    children = {pid: worker for worker in fleet.workers for pid in worker.children()}
    empty, before, paid = stored(server), busy(set(children)), models.paid
    handle = client.submit(prepare(str(CREW)))
    assert models.arrived.acquire(timeout=600)
    worked = {pid: now - before[pid] for pid, now in busy(set(children)).items()}
    first = max(worked, key=worked.__getitem__)
    kept = stored(server) - empty
    others = {pid for pid, worker in children.items() if worker is not children[first]}
    before = busy(others)
    began = time.monotonic()
    killed: Worker = children[first]
    killed.kill()
    assert models.arrived.acquire(timeout=600)
    replayed = sum(now - before[pid] for pid, now in busy(others).items())
    row = Row(calls, worked[first], replayed, models.at - began, kept)
    models.release.set()
    result = handle.wait(600)
    ledger = result.ledger
    assert result.status == "completed", result
    assert (models.paid - paid, ledger["replayed"], ledger["in_doubt"]) == (calls + 2, calls, 1), ledger
    return row


def measure(calls: list[int], rounds: int) -> Iterator[Row]:
    """Each number of calls in its turn, on one server."""
    models = Models()
    threading.Thread(target=models.serve_forever, daemon=True).start()
    environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{models.server_port}/v1", "OPENAI_API_KEY": "none"}
    with serving() as server, Client(server.url) as client, Fleet(server, 2, **environment) as fleet:
        for _ in range(rounds):
            for many in calls:
                yield one(server, client, fleet, models, many)


def markdown(rows: list[Row]) -> str:
    """The medians."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for calls in dict.fromkeys(row.calls for row in rows):
        of = [row for row in rows if row.calls == calls]
        first, replay, wall = (
            statistics.median(getattr(row, name) for row in of) for name in ("first", "replay", "wall")
        )
        share = statistics.median(row.replay / row.first for row in of)
        size = statistics.median(row.stored for row in of)
        lines.append((f"{calls:,}", f"{first:.2f} s", f"{replay:.3f} s", f"{share:.1%}", f"{wall:.2f} s",
                      f"{size / 1e6:.2f} MB"))  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples there")
    given = parser.parse_args()
    before, load = machine.calibration(), machine.load()
    rows = list(measure(given.calls, given.rounds))
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, cwd=HERE)
    print(markdown(rows))
    print(f"\nMeasured at commit {commit.stdout.strip()}. {machine.describe()}; rounds: {given.rounds}, load {load}, "
          f"calibration {before:.0f} ms.")  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
