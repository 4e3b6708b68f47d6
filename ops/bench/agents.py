"""How many agents one worker has in flight, and what an agent that waits costs: ``python ops/bench/agents.py``.

Each run is one agent with one call of a model, which answers after ``--delay`` seconds. The model's server is a
process of its own. Counted there: the calls that waited at the same time. Of the worker, all of its processes: the
proportional set size, and processor time.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from waiting import until

from runner.client import Client, prepare
from runner.testing import Fleet, RedisServer

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

    ``GET /`` tells the calls, and how many waited at a time; ``GET /times`` when each came.
    """
    told, times = {"calls": 0, "now": 0, "most": 0}, list[float]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                await reader.readexactly(int(lines.get(b"content-length", b"0")))
                body = json.dumps(times if head.startswith(b"GET /times") else told)
                if head.startswith(b"POST"):
                    times.append(time.monotonic())
                    told["calls"] += 1
                    told["now"] += 1
                    told["most"] = max(told["most"], told["now"])
                    await asyncio.sleep(delay if told["calls"] > 1 else 0.0)
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


def measure(agents: int, delay: float, *arguments: str, crew_file: str = CREW, end: str = "") -> dict[str, Any]:
    """Have so many agents at work on one worker with these arguments.

    With ``end``, a method of `runner.testing.WorkerProcess`, on another, which stands by, when the first was ended with
    all of them in flight.
    """
    code = [sys.executable, __file__, "--serve", "--delay", str(delay)]
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
                worker = fleet.start(*(arguments or ("--pool", "auto")))
                prepared = prepare(str(crew))
                client.submit(prepared, {"n": "0"}).wait(120)
                time.sleep(2)
                group = processes(worker.pid)
                idle, began, started = memory(group), seconds(group), time.monotonic()
                runs = [client.submit(prepared, {"n": str(n)}) for n in range(1, agents + 1)]
                peak, at_peak, now, killed, at = 0.0, 0, dict[str, int](), 0, 0.0

                def over() -> bool:
                    nonlocal peak, at_peak, now, killed, at
                    now = json.loads(urllib.request.urlopen(address, timeout=60).read())
                    if not killed and now["now"] > at_peak:
                        at_peak, peak = now["now"], max(peak, memory(processes(worker.pid)))
                    if end and not killed and now["now"] == agents:
                        fleet.start(*(arguments or ("--pool", "auto")))
                        time.sleep(STAND_BY)  # as one that stood by for long: it has imported what others use
                        killed = json.loads(urllib.request.urlopen(address, timeout=60).read())["now"]
                        at = time.monotonic()
                        getattr(worker, end)()
                    return client.store.workers.active_runs() == 0

                until(over, "all runs end", within=120 + delay * agents, every=1.0)
                took, spent = time.monotonic() - started, 0.0 if end else seconds(processes(worker.pid)) - began
                completed = sum(run.status == "completed" for run in runs)
                ledgers = [run.wait(0).ledger for run in runs]
                times = json.loads(urllib.request.urlopen(f"{address}/times", timeout=60).read())
                again = [round(when - at, 2) for when in times[agents + 1 :]]
        finally:
            model.kill()
    return {
        "agents": agents, "delay": delay, "completed": completed, "calls": now["calls"], "in flight": now["most"],
        "idle MB": round(idle), "peak MB": round(peak), "seconds": round(took, 1),
        "processor ms each": round(spent * 1000 / agents, 1), "ended with": killed,
        "calls again, the first, 100th, last": [again[0], again[min(99, len(again) - 1)], again[-1]] if again else [],
        "paid": sum(one["paid"] for one in ledgers), "in doubt": sum(one["in_doubt"] for one in ledgers),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--delay", type=float, default=20.0)
    parser.add_argument("--crewai", action="store_true", help="agents of CrewAI: needs crew-runner[crewai]")
    parser.add_argument("--kill", action="store_const", const="kill_group", help="kill -9 when all are in flight")
    parser.add_argument("--term", action="store_const", const="terminate", help="SIGTERM when all are in flight")
    parser.add_argument("--serve", action="store_true", help="be the model's server")
    given, rest = parser.parse_known_args()
    if given.serve:
        asyncio.run(serve(given.delay))
    else:
        crew_file = CREWAI if given.crewai else CREW
        print(
            json.dumps(
                measure(given.agents, given.delay, *rest, crew_file=crew_file, end=given.kill or given.term or "")
            )
        )
