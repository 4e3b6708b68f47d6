"""A worker is killed with -9 at each call of crews of CrewAI, in turn: python ops/chaos/crewai_calls.py

Needs CrewAI. Each crew of tests/crewai/crews runs once unharmed; then once for each of its calls and each moment, and
once with a kill at every call. `flight`: the server has the request and has not answered. `answered`: the answer is on
its way, or recorded, or what comes next has begun. Exit code 0 if the server was asked as often as by the unharmed run
and once more for each call in doubt, and for nothing else, and the result and what tools and callbacks did is the same.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.client import Client, RunResult
from runner.testing import Fleet, ModelRequest, ModelServer, RedisServer

CREWS = Path(__file__).resolve().parents[2] / "tests" / "crewai" / "crews"
MOMENTS = ("flight", "answered")

#: CrewAI's memory tells models of ids and times of day: its calls are other ones when they are made again.
CHANGES = ("remembering",)
CHANGING = re.compile(r"id=[0-9a-f-]{36}|created=[0-9T:.-]+|score=[0-9.]+")


@dataclass
class Done:
    """What one run came to."""

    status: str
    outputs: dict[str, str]
    asked: Counter[str]
    did: Counter[str]
    in_doubt: int
    replayed: int


@dataclass
class Scene:
    """Where the crews run."""

    client: Client
    fleet: Fleet
    models: ModelServer
    trace: Path
    script: Any
    moment: str = ""
    wanted: set[int] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    kills: int = 0

    def answer(self, request: ModelRequest) -> Any:
        """The model server's script. The process that asks is killed at some of its calls, when each comes first."""
        digest = digest_of(request)
        if digest not in self.seen:
            self.seen.add(digest)
            if len(self.seen) in self.wanted:
                if self.moment == "flight":
                    self.kill()
                else:
                    threading.Thread(target=self.when_answered, args=(request,), daemon=True).start()
        return self.script(request)

    def when_answered(self, request: ModelRequest) -> None:
        while not request.delivered:
            time.sleep(0.0005)
        self.kill()

    def kill(self) -> None:
        for worker in self.fleet.workers:
            for pid in worker.children():
                os.kill(pid, signal.SIGKILL)
        self.kills += 1

    def run(self, name: str, moment: str, wanted: set[int]) -> Done:
        """One run with kills at these calls."""
        self.moment, self.wanted, self.seen, self.kills = moment, wanted, set(), 0
        self.models.reset()
        self.trace.write_text("")
        result: RunResult = self.client.submit(CREWS / name / "crew.py", {"x": "owls"}).wait(900)
        rows = result.ledger["by"]
        return Done(
            f"{result.status} {result.error or ''}".strip(),
            dict(result.outputs),
            Counter(map(digest_of, self.models.log)),
            Counter(self.trace.read_text().splitlines()),
            sum(row["in_doubt"] for row in rows),
            sum(row["replayed"] for row in rows),
        )


def digest_of(request: ModelRequest) -> str:
    """What a request asks, without what is another each time."""
    return request.path + CHANGING.sub("", json.dumps(request.body, sort_keys=True))


def wrong(name: str, scene: Scene, unharmed: Done, done: Done) -> list[str]:
    """What is not as it should be."""
    found = []
    again = done.asked - unharmed.asked
    if (done.status, done.outputs) != ("completed", unharmed.outputs):
        found.append(f"{done.status}: {done.outputs}")
    if scene.kills != len(scene.wanted):
        found.append(f"{scene.kills} kills, not {len(scene.wanted)}")
    if strange := (done.asked.keys() ^ unharmed.asked.keys()) if name not in CHANGES else ():
        found.append(f"asked something else: {[one[:300] for one in strange]}")
    if scene.moment == "flight" and (again.total(), done.in_doubt) != (scene.kills, scene.kills):
        found.append(f"asked {again.total()} times more, {done.in_doubt} in doubt, after {scene.kills} kills")
    if again.total() > done.in_doubt:
        found.append(f"asked {again.total()} times more, and only {done.in_doubt} in doubt")
    twice = (done.did - unharmed.did).total()
    if unharmed.did - done.did or twice > (scene.kills if scene.moment == "answered" else 0):
        found.append(f"tools and callbacks: {done.did} and not {unharmed.did}")
    return found


def main() -> int:
    known = sorted(one.parent.name for one in CREWS.glob("*/crew.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crews", nargs="+", choices=known, default=known)
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS))
    parser.add_argument("--at-once", action="store_true", help="only one run of each crew, hit at every call")
    given = parser.parse_args()
    spec = importlib.util.spec_from_file_location("scripted", CREWS.parent / "scripted.py")
    scripted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scripted)
    runs = kills = bad = 0
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        RedisServer() as redis,
        ModelServer() as models,
        Client(redis.url) as client,
    ):
        trace = Path(folder) / "trace"
        settings = {
            **models.environment, "MODEL_SERVER": models.root, "TRACE": str(trace), "HOME": folder,
            "RUNNER_MAX_ATTEMPTS": "1000",
        }  # fmt: skip
        os.environ.update({name: text for name, text in settings.items() if not name.startswith("RUNNER_")})
        with Fleet(redis.url, settings=settings, starts_within=180) as fleet:
            scene = Scene(client, fleet, models, trace, scripted.script)
            models.use(scene.answer)
            fleet.start("--concurrency", "1")
            for name in given.crews:
                unharmed = scene.run(name, "", set())
                calls = range(1, len(unharmed.asked) + 1)
                hits = [set(calls)] if given.at_once else [*({n} for n in calls), set(calls)]
                for moment in given.moments:
                    asked = doubt = served = 0
                    for wanted in hits:
                        done = scene.run(name, moment, wanted)
                        runs, kills = runs + 1, kills + scene.kills
                        asked += done.asked.total()
                        doubt, served = doubt + done.in_doubt, served + done.replayed
                        for what in wrong(name, scene, unharmed, done):
                            bad += 1
                            print(f"WRONG {name}, {moment}, at {sorted(wanted)}: {what}")
                    told = f"{len(hits)} runs of {len(calls)} calls: {asked} asked, {doubt} in doubt, {served} served"
                    print(f"{name:14} {moment:9} {told}", flush=True)
            if bad:
                print(fleet.log()[-20000:], file=sys.stderr)
    print(f"{runs} runs, {kills} kills, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
