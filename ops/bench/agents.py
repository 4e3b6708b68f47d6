"""How many agents one worker has in flight, and what an agent that waits costs: ``python ops/bench/agents.py``.

Each run is one agent with one call of a model, which answers after ``--delay`` seconds. The model's server is a
process of its own. Counted there: the calls that waited at the same time. Of the worker, all of its processes: the
proportional set size, and processor time.

With ``--end HOW`` the worker ends when all of them are in flight, while another stands by: ``kill`` is kill -9 of all
its processes, ``child`` of the one that has most tasks, ``term`` SIGTERM, ``freeze`` SIGSTOP of all. Calls are answered
when each of those that were out was made again. A table says when the tasks were handed back, when another process
claimed them, when their calls left again, and what processor time that took.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from processor import used
from waiting import until

from runner.client import Client, RunHandle, prepare
from runner.providers.redis import keys
from runner.testing import Fleet, RedisServer, WorkerProcess

CREW = """
from runner import Agent, Crew, Task

agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/m")
crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent)])
"""

CREWAI = """
from crewai import Agent, Crew, Task

agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/gpt-4o-mini")
task = Task(name="write", description="Write number {n}.", expected_output="text", agent=agent)
crew = Crew(agents=[agent], tasks=[task])
"""


async def serve(delay: float) -> None:
    """Answer each call after ``delay`` seconds, the first at once: nothing is measured then.

    ``GET /`` tells the calls, and how many waited at a time; ``GET /times`` when each came; ``GET /answer`` has all
    answered from now on.
    """
    told, times, answers = {"calls": 0, "now": 0, "most": 0}, list[float](), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                await reader.readexactly(int(lines.get(b"content-length", b"0")))
                body = json.dumps(times if head.startswith(b"GET /times") else told)
                if head.startswith(b"GET /answer"):
                    answers.set()
                if head.startswith(b"POST"):
                    times.append(time.monotonic())
                    told["calls"] += 1
                    told["now"] += 1
                    told["most"] = max(told["most"], told["now"])
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(answers.wait(), delay if told["calls"] > 1 else 0.0)
                    told["now"] -= 1
                    choice = {
                        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."},
                    }  # fmt: skip
                    body = json.dumps({
                        "id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
                        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                    })  # fmt: skip
                kind = f"content-type: application/json\r\ncontent-length: {len(body)}"
                writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def processes(group: int) -> list[int]:
    """The pids of a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _read(path: str) -> str:
    """What it says; nothing of a process that has ended."""
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def memory(pids: list[int]) -> float:
    """The proportional set size of these processes, in MB."""
    lines = [line for pid in pids for line in _read(f"/proc/{pid}/smaps_rollup").splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def seconds(pids: list[int]) -> float:
    """The processor time of these processes, and of those that they forked and that have ended."""
    told = [_read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in pids]
    return sum(float(one) for fields in told for one in fields[11:15]) / os.sysconf("SC_CLK_TCK")


STAND_BY = 10.0  #: seconds that another worker is there before it takes over


def parts(client: Client, worker: WorkerProcess) -> list[str]:
    """What a worker has registered as: with the pool ``auto`` it is two."""
    return [one.id for one in client.store.workers.alive() if os.getpgid(one.fields["pid"]) == worker.pid]


def held(client: Client, worker: WorkerProcess) -> Counter[int]:
    """How many tasks each process of a worker has."""
    workers = client.store.workers
    of = (keys.key("claims_key", home=workers.home, worker=one) for one in parts(client, worker))
    claims = (workers.client.hvals(key) for key in of)
    return Counter(int(claim.split("|")[1].partition("-")[0]) for some in claims for claim in some)


ENDS: dict[str, Callable[[WorkerProcess, int], None]] = {
    "kill": lambda worker, _: worker.signal_group(signal.SIGKILL),
    "child": lambda _, process: os.kill(process, signal.SIGKILL),
    "term": lambda worker, _: worker.terminate(),
    "freeze": lambda worker, _: worker.signal_group(signal.SIGSTOP),
}


class HandOver:
    """One worker ends, and another takes over what it had in flight."""

    def __init__(
        self, client: Client, fleet: Fleet, redis: RedisServer, worker: WorkerProcess, *arguments: str
    ) -> None:
        self._client, self._redis = client, redis
        self._other, many = fleet.start(*arguments), len(parts(client, worker))
        # One that imports CrewAI registers later than its other part.
        until(lambda: len(parts(client, self._other)) == many, "another worker stands by", within=300.0, every=0.5)
        self._at = self._clock = self._store = self._spent = 0.0
        self.lost = 0

    def begin(self, end: str, worker: WorkerProcess) -> None:
        has = held(self._client, worker)
        process, most = has.most_common(1)[0]
        self._store, self._spent = self._store_has_used(), seconds(processes(self._other.pid))
        self._at, self._clock = time.time(), time.monotonic()
        ENDS[end](worker, process)
        self.lost = most if end == "child" else has.total()

    def _store_has_used(self) -> float:
        return used((), [self._redis.process.pid] if self._redis.process else [])

    def rows(self, runs: Sequence[RunHandle], calls: Sequence[float]) -> list[tuple[str, str]]:
        """What the table says; ``calls`` are those that came afterwards, by the clock of this machine."""
        store, other = self._store_has_used() - self._store, seconds(processes(self._other.pid)) - self._spent
        events = [event for run in runs for event in run.events()]
        again = [at - self._clock for at in calls]

        def times(*types: str) -> list[float]:
            return sorted(event.at / 1000 - self._at for event in events if event.type in types)

        return [
            ("tasks in flight", str(self.lost)),
            ("handed back: the first, median, last", spread(times("task_recovered", "task_released"))),
            ("claimed elsewhere: the first, median, last", spread(times("task_resumed"))),
            ("the next call of each: the first, median, last", spread(again)),
            ("… the 10th, the 100th", ", ".join(f"{at:.2f}" for at in again[9:100:90]) + " s"),
            ("processor time until all ended: of the store, for each", f"{store * 1000 / self.lost:.2f} ms"),
            ("… of the other worker, for each", f"{other * 1000 / self.lost:.2f} ms"),
        ]


def spread(times: Sequence[float]) -> str:
    """The first, the median, and the last of them, in seconds."""
    if not times:
        return "none"
    return ", ".join(f"{at:.2f}" for at in (times[0], statistics.median(times), times[-1])) + " s"


def measure(agents: int, delay: float, *arguments: str, crew_file: str = CREW, end: str = "") -> dict[str, Any]:
    """Have so many agents at work on one worker with these arguments; with ``end``, one of `ENDS`, then on another."""
    code = [sys.executable, __file__, "--serve", "--delay", str(3600 if end else delay)]
    pool = arguments or ("--pool", "auto")
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer() as redis,
        Client(redis.url) as client,
        subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as model,
    ):
        assert model.stdout is not None
        address = f"http://127.0.0.1:{model.stdout.readline().strip()}"
        settings = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none"}
        crew = Path(folder, "crew.py")
        crew.write_text(crew_file)
        try:
            with Fleet(redis.url, settings=settings) as fleet:
                fleet.starts_within = 300.0  # where it imports CrewAI
                worker = fleet.start(*pool)
                prepared = prepare(str(crew))
                client.submit(prepared, {"n": "0"}).wait(120)
                time.sleep(2)
                group = processes(worker.pid)
                idle, began, started = memory(group), seconds(group), time.monotonic()
                runs = [client.submit(prepared, {"n": str(n)}) for n in range(1, agents + 1)]
                peak, at_peak, now, answered = 0.0, 0, dict[str, int](), not end
                hand_over: HandOver | None = None

                def over() -> bool:
                    nonlocal peak, at_peak, now, answered, hand_over
                    now = json.loads(urllib.request.urlopen(address, timeout=60).read())
                    if hand_over is None and now["now"] > at_peak:
                        at_peak, peak = now["now"], max(peak, memory(processes(worker.pid)))
                    if end and hand_over is None and now["now"] == agents:
                        hand_over = HandOver(client, fleet, redis, worker, *pool)
                        time.sleep(STAND_BY)  # as one that stood by for long: it has imported what others use
                        hand_over.begin(end, worker)
                    elif not answered and hand_over is not None and now["calls"] > agents + hand_over.lost:
                        urllib.request.urlopen(f"{address}/answer", timeout=60).close()
                        answered = True
                    return client.store.workers.active_runs() == 0

                until(over, "all runs end", within=300 + delay * agents, every=0.5)
                took, spent = time.monotonic() - started, 0.0 if end else seconds(processes(worker.pid)) - began
                completed = sum(run.status == "completed" for run in runs)
                ledgers = [run.wait(0).ledger for run in runs]
                times = json.loads(urllib.request.urlopen(f"{address}/times", timeout=60).read())
                rows = hand_over.rows(runs, times[agents + 1 :]) if hand_over is not None else []
        finally:
            model.kill()
    return {
        "agents": agents, "delay": delay, "completed": completed, "calls": now["calls"], "in flight": now["most"],
        "idle MB": round(idle), "peak MB": round(peak), "seconds": round(took, 1),
        "processor ms each": round(spent * 1000 / agents, 1),
        "paid": sum(one["paid"] for one in ledgers), "in doubt": sum(one["in_doubt"] for one in ledgers),
        "hand-over": rows,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--delay", type=float, default=20.0)
    parser.add_argument("--crewai", action="store_true", help="agents of CrewAI: needs crew-runner[crewai]")
    parser.add_argument("--end", choices=list(ENDS), default="", help="end the worker when all are in flight")
    parser.add_argument("--serve", action="store_true", help="be the model's server")
    given, rest = parser.parse_known_args()
    if given.serve:
        asyncio.run(serve(given.delay))
    else:
        crew_file = CREWAI if given.crewai else CREW
        before = os.getloadavg()[0]
        found = measure(given.agents, given.delay, *rest, crew_file=crew_file, end=given.end)
        for what, told in found.pop("hand-over"):
            print(f"| {what} | {told} |")
        print(json.dumps({**found, "load": [round(before, 1), round(os.getloadavg()[0], 1)]}))
