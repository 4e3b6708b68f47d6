"""Measure what a process for each task costs crews of CrewAI, in time and memory: prints one Markdown table.

    python ops/bench/crewai_jobs.py [--jobs N] [--json FILE]

Needs ``pip install -e '.[crewai]'``. The models are a server on this machine that answers at once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
from fleet import CONCURRENCY, HERE, Fleet, Worker
from servers import serving
from table import Row, markdown, spread

from runner.client import Client, prepare
from runner.testing import ModelServer

CREW = HERE / "crews" / "crewai" / "crew.py"
TASKS = 10  # of that crew
MB = 1 << 20

FORKS = """
import json, os, sys, time
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
import runner.tasks.jobs
from runner.engine import adapters
empty, began, busy = rss(), time.perf_counter(), time.process_time()
adapters.preload("crewai")
found = {"seconds": time.perf_counter() - began, "busy": time.process_time() - busy, "before": empty, "after": rss()}
times = []
for _ in range(200):
    began = time.perf_counter()
    pid = os.fork()
    if not pid:
        os._exit(0)
    times.append(time.perf_counter() - began)
    os.waitpid(pid, 0)
print(json.dumps({**found, "forks": times}))
"""


def environment(folder: Path, models: ModelServer) -> dict[str, str]:
    return {
        "MODELS": f"{models.root}/v1", "NOTES": str(folder / "notes"), "HOME": str(folder),
        "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_DISABLE_VERSION_CHECK": "true",
    }  # fmt: skip


def noted(folder: Path) -> list[dict[str, Any]]:
    """What the tasks said of themselves, and nothing twice."""
    file = folder / "notes"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def main_process() -> Iterator[Row]:
    """What is done once for a worker, and then for each process."""
    told = subprocess.run(
        [sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "RUNNER_REDIS_URL": "redis://nobody", "RUNNER_WORKER_ID": "w"},
    )  # fmt: skip
    found = json.loads(told.stdout)
    yield Row(
        "import", "import of CrewAI: once for a worker, before it takes tasks", found["seconds"],
        f"{found['seconds']:.1f} s ({found['busy']:.1f} s of processor time), {found['before'] / MB:.0f} MB become "
        f"{found['after'] / MB:.0f} MB",
    )  # fmt: skip
    forks = [one * 1000 for one in found["forks"]]
    yield Row("fork", "fork of a process for a task", statistics.median(forks), spread(forks, 1, " ms"))


def alone(folder: Path, models: ModelServer) -> dict[str, list[float]]:
    """Milliseconds that a task takes in one process, all imported: of a second kickoff."""
    subprocess.run([sys.executable, CREW], env={**os.environ, **environment(folder, models)}, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    tasks = noted(folder)[TASKS:]
    at = [tasks[0]["began"], *(one["ended"] for one in tasks)]
    busy = [tasks[0]["busy"][0], *(one["busy"][2] for one in tasks)]
    return {"whole": _steps(at), "busy": _steps(busy)}


def _steps(times: list[float]) -> list[float]:
    return [(later - earlier) * 1000 for earlier, later in pairwise(times)]


def tasks_of(client: Client, run: str) -> dict[str, dict[str, float]]:
    """When each task was claimed and committed, in seconds."""
    found: dict[str, dict[str, float]] = {}
    for event in client.run(run).events():
        if event.type in ("task_started", "task_completed"):
            found.setdefault(str(event.fields["task"]), {})[event.type] = event.at / 1000
    return found


def in_turn(client: Client, folder: Path, bare: dict[str, list[float]], runs: int) -> Iterator[Row]:
    """One run after the other, so that a task has the worker for itself."""
    crew = prepare(str(CREW))
    ms: dict[str, list[float]] = {name: [] for name in ("whole", "between", "before", "load", "work", "busy")}
    busy: list[tuple[float, ...]] = []
    for number in range(runs + 1):
        handle = client.submit(crew)
        assert handle.wait(300).status == "completed"
        notes = noted(folder)
        if not number:  # the first one warms up
            continue
        times = list(tasks_of(client, handle.id).values())
        for task, next_one in pairwise(times):
            ms["between"].append((next_one["task_started"] - task["task_completed"]) * 1000)
        used: dict[int, float] = {}  # by a process for the tasks that it did before
        for one, task in zip(notes, times, strict=True):
            ms["whole"].append((task["task_completed"] - task["task_started"]) * 1000)
            ms["before"].append((one["began"] - task["task_started"]) * 1000)
            ms["load"].append((one["loaded"] - one["began"]) * 1000)
            ms["work"].append((one["ended"] - one["loaded"]) * 1000)
            before, used[one["pid"]] = used.get(one["pid"], 0.0), one["busy"][2]
            busy.append(tuple((at - before) * 1000 for at in one["busy"]))
    ms["busy"] = [one[2] for one in busy]
    for name, what in (
        ("whole", "a task with one call, from claim to commit"),
        ("busy", "processor time of its process, from the fork, or the task before, to the end"),
    ):
        yield Row(
            name, what, statistics.median(ms[name]), spread(ms[name], 0, " ms"),
            peer=f"{spread(bare[name], 0, ' ms')}: CrewAI alone, task upon task in one process",
            ratio=f"{statistics.median(ms[name]) / statistics.median(bare[name]):.1f}",
            samples={"ours": ms[name], "peer": bare[name]},
        )  # fmt: skip
    parts = list(zip(*busy, strict=True))
    for name, what, used in (
        ("before", "until the crew file is begun", parts[0]),
        ("load", "reading the crew file: its agents, tasks and clients of models", _apart(parts[1], parts[0])),
        ("work", "CrewAI's kickoff of the one task, with its call", _apart(parts[2], parts[1])),
    ):
        took = f"{spread(ms[name], 0, ' ms')}; {statistics.median(used):.0f} ms of processor time"
        yield Row(name, f"of this: {what}", statistics.median(ms[name]), took, samples={"wall": ms[name]})
    yield Row("between", "from a commit to the claim of the next task", statistics.median(ms["between"]),
              spread(ms["between"], 0, " ms"))  # fmt: skip


def flow(client: Client, folder: Path, runs: int) -> Iterator[Row]:
    """Methods of a flow that do nothing, one after the other."""
    made = prepare(str(CREW.with_name("flow.py")))
    whole: list[float] = []
    busy: list[float] = []
    for number in range(runs + 1):
        handle = client.submit(made)
        assert handle.wait(300).status == "completed"
        notes = noted(folder)
        if number:  # the first one has the worker import what flows need
            whole += [
                (one["task_completed"] - one["task_started"]) * 1000 for one in tasks_of(client, handle.id).values()
            ]
            busy += [one["busy"] * 1000 for one in notes]
    told = f"{spread(whole, 0, ' ms')}; {spread(busy, 0, ' ms')} of processor time"
    what = "a flow's method that does nothing, from claim to commit"
    yield Row("method", what, statistics.median(whole), told, samples={"wall": whole})


def _apart(later: tuple[float, ...], earlier: tuple[float, ...]) -> list[float]:
    return [a - b for a, b in zip(later, earlier, strict=True)]


def state(worker: Worker) -> dict[str, int]:
    """What a worker's main process has."""
    at = Path(f"/proc/{worker.main}")
    kept = [line.split() for line in (at / "smaps_rollup").read_text().splitlines()]
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in kept if words[-1] == "kB"}
    return {
        "rss": sizes["Rss"], "own": sizes["Private_Dirty"] + sizes["Private_Clean"],
        "files": len(list((at / "fd").iterdir())), "threads": len(list((at / "task").iterdir())),
    }  # fmt: skip


def many(client: Client, worker: Worker, folder: Path, jobs: int) -> Iterator[Row]:
    """Job upon job, as many at once as there are processes."""
    crew = prepare(str(CREW))
    seen, memory = [], []
    began = time.monotonic()
    for _ in range(0, jobs, CONCURRENCY * TASKS):
        for handle in [client.submit(crew) for _ in range(CONCURRENCY)]:
            assert handle.wait(600).status == "completed"
        seen.append(state(worker))
        memory += [one["private"] for one in noted(folder)]
    took = time.monotonic() - began
    first, last = seen[0], seen[-1]
    own = [one / MB for one in memory]
    yield Row("child", "memory of a task's process that it shares with no other, at its end", statistics.median(own),
              spread(own, 0, " MB"), samples={"private": own})  # fmt: skip
    yield Row(
        "growth", f"the worker's main process after {len(memory)} tasks / after {CONCURRENCY * TASKS}",
        last["rss"] / first["rss"],
        f"{last['rss'] / MB:.1f} MB / {first['rss'] / MB:.1f} MB, {last['files']} / {first['files']} files, "
        f"{last['threads']} / {first['threads']} threads",
        samples={"rss": [one["rss"] / MB for one in seen]},
    )  # fmt: skip
    children = len(worker.children())
    yield Row("rate", f"tasks in a second, {CONCURRENCY} at once; {children} processes are left", len(memory) / took,
              f"{len(memory) / took:.2f}")  # fmt: skip


def measure(jobs: int) -> Iterator[Row]:
    yield from main_process()
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ModelServer() as models, serving() as server:
        folder = Path(name)
        told = environment(folder, models)
        os.environ.update(told)
        bare = alone(folder, models)
        with Client(server.url) as client, Fleet(server, 1, **told) as fleet:
            yield from in_turn(client, folder, bare, runs=2)
            yield from flow(client, folder, runs=2)
            yield from many(client, fleet.workers[0], folder, jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500, help="how many tasks at least, for growth (500)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and samples there")
    options = parser.parse_args()
    before, began = f"load before {machine.load()}, calibration {machine.calibration():.1f} ms", time.monotonic()
    rows = []
    for row in measure(options.jobs):
        print(f"[{time.monotonic() - began:5.0f} s] {row.what}: {row.ours}", file=sys.stderr, flush=True)
        rows.append(row)
    after = f"after {machine.load()}, {machine.calibration():.1f} ms"
    about = f"{machine.describe()}; {before}; {after}; {time.monotonic() - began:.0f} s"
    print(markdown(rows), about, sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps({"about": about, "rows": [row.as_json() for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
