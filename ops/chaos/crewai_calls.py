"""A process is killed with -9 at each call of crews of CrewAI, in turn: python ops/chaos/crewai_calls.py

Needs CrewAI. Each crew of tests/worker/adapters/crews and of ops/chaos/crews runs once unharmed; then once for each of
its calls and each moment, with one kill, and once with a kill at every call. The moments:

flight    the server has the request and has not answered
answered  the answer is out, and nothing of it is recorded
recorded  the answer is recorded; what comes next may have begun
used      a tool or a callback has done what it does, and has not returned
waiting   a person is asked: a whole worker is killed while nothing is done, and then they answer
said      a person has answered just now: a whole worker is killed

Exit code 0 if the models were asked as often as by the unharmed run and once more for each call in doubt, tools were
used as often and once more for each use in doubt, callbacks were called as often and once more for each kill inside of
one, and the result is the same.
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

from runner.client import Client
from runner.testing import Fleet, ModelRequest, ModelServer, RedisServer, WorkerProcess

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests" / "worker" / "adapters"
CREWS = {one.parent.name: one for root in (TESTS, HERE) for one in (root / "crews").glob("*/crew.py")}
OF_CALLS = ("flight", "answered", "recorded")
OF_PEOPLE = ("waiting", "said")
MOMENTS = (*OF_CALLS, "used", *OF_PEOPLE)
SAYS = {"asking": ("shorter", "", "longer", ""), "flowing": ("Good.",)}  #: what a person answers, in this order

#: CrewAI's memory tells models of ids and times of day: its calls are other ones when they are made again.
CHANGES = ("remembering",)
CHANGING = re.compile(r"id=[0-9a-f-]{36}|created=[0-9T:.-]+|score=[0-9.]+")
METHOD = re.compile(r"\w+: in ")  #: what a flow's method does outside of steps is done again with it


@dataclass
class Done:
    """What one run came to."""

    status: str
    outputs: dict[str, str]
    asked: Counter[str]
    did: Counter[str]
    paid: int
    in_doubt: int
    replayed: int
    tools_in_doubt: int
    answers: int


@dataclass
class Scene:
    """Where the crews run, and what is to happen to the next one."""

    client: Client
    fleet: Fleet
    worker: WorkerProcess
    models: ModelServer
    trace: Path
    script: Any
    moment: str = ""
    wanted: set[int] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    out: int = 0
    run_id: str = ""
    kills: int = 0

    def answer(self, request: ModelRequest) -> Any:
        """The model server's script. The process that asks is killed at some of its calls, when each comes first."""
        digest = digest_of(request)
        if digest not in self.seen:
            self.seen.add(digest)
            if self.moment in OF_CALLS and len(self.seen) in self.wanted:
                if self.moment == "flight":
                    self.kill(signal.SIGKILL)
                else:
                    if self.moment == "answered":
                        self.kill(signal.SIGSTOP)  # what comes is not read
                    paid = self.paid()
                    threading.Thread(target=self.when_answered, args=(request, paid), daemon=True).start()
        return self.script(request)

    def paid(self) -> int:
        """How many calls of the run are recorded."""
        return int(self.worker.redis.hget(f"runner:{{p0}}:run:{self.run_id}", "paid") or 0) if self.run_id else 0

    def when_answered(self, request: ModelRequest, paid: int) -> None:
        while not request.delivered:
            time.sleep(0.0005)
        while self.moment == "recorded" and self.paid() <= paid:
            time.sleep(0.0005)
        self.kill(signal.SIGKILL)

    def when_used(self, hold: Path) -> None:
        """The process that writes a line of the trace is held there, and killed."""
        (place,) = self.wanted
        while self.trace.read_text().count("\n") < place:
            if not hold.exists():
                return
            time.sleep(0.0005)
        hold.unlink()
        self.kill(signal.SIGKILL)

    def kill(self, signum: int) -> None:
        """Those that do tasks."""
        for pid in self.worker.children():
            os.kill(pid, signum)
        self.kills += signum == signal.SIGKILL

    def kill_whole(self) -> None:
        """The worker's main process, and its children with it. It is started anew."""
        before = self.worker.about().get("id")
        os.kill(self.worker.main_pid(), signal.SIGKILL)
        self.kills += 1
        while self.worker.about().get("id") in (None, before):
            time.sleep(0.01)

    def run(self, name: str, moment: str, wanted: set[int]) -> Done:
        """One run with kills at these calls, these lines of the trace, or these answers."""
        self.moment, self.wanted, self.seen, self.kills, self.run_id = moment, wanted, set(), 0, ""
        self.models.reset()
        self.trace.write_text("")
        hold = self.trace.with_suffix(".hold")
        if moment == "used":
            hold.write_text(str(*wanted))
            threading.Thread(target=self.when_used, args=(hold,), daemon=True).start()
        handle = self.client.submit(CREWS[name], {"x": "owls"})
        self.run_id = handle.id
        answers = 0
        while (result := handle.wait(900)).status == "waiting":
            answers += 1
            if (moment, wanted) == ("waiting", {answers}):
                self.kill_whole()
            handle = self.client.answer(handle.id, SAYS[name][answers - 1])
            if (moment, wanted) == ("said", {answers}):
                time.sleep(0.05 * answers)
                self.kill_whole()
        hold.unlink(missing_ok=True)
        rows = result.ledger["by"]
        return Done(
            f"{result.status} {result.error or ''}".strip(),
            dict(result.outputs),
            Counter(map(digest_of, self.models.log)),
            Counter(self.trace.read_text().splitlines()),
            *(sum(row[what] for row in rows) for what in ("calls", "in_doubt", "replayed")),
            result.ledger["tools"]["in_doubt"],
            answers,
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
    if done.asked.total() != done.paid + done.in_doubt:
        found.append(f"asked {done.asked.total()} times: {done.paid} paid and {done.in_doubt} in doubt")
    if scene.moment in ("flight", "answered") and again.total() < scene.kills:
        found.append(f"asked {again.total()} times more after {scene.kills} kills")
    if name not in CHANGES and again.total() != done.in_doubt:
        found.append(f"asked {again.total()} times more, and {done.in_doubt} in doubt")
    if fewer := unharmed.did - done.did:
        found.append(f"not done: {fewer}")
    twice = Counter({line: many for line, many in (done.did - unharmed.did).items() if not METHOD.match(line)})
    inside = scene.kills if scene.moment in ("used", "recorded", "said") else 0
    if twice.total() > done.tools_in_doubt + inside:
        found.append(f"done again: {twice}; {done.tools_in_doubt} uses of tools in doubt, {scene.kills} kills")
    return found


def places(moment: str, unharmed: Done, at_once: bool) -> list[set[int]]:
    """Where the kills of each run fall."""
    many = {"used": unharmed.did.total(), "waiting": unharmed.answers, "said": unharmed.answers}
    each = range(1, many.get(moment, len(unharmed.asked)) + 1)
    if moment not in OF_CALLS:
        return [] if at_once else [{n} for n in each]
    return [set(each)] if at_once else [*({n} for n in each), *([set(each)] if moment == "flight" else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crews", nargs="+", choices=sorted(CREWS), default=sorted(CREWS))
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS))
    parser.add_argument("--at-once", action="store_true", help="only one run of each crew, hit at every call")
    given = parser.parse_args()
    spec = importlib.util.spec_from_file_location("scripted", TESTS / "scripted.py")
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
            scene = Scene(client, fleet, fleet.start("--concurrency", "1"), models, trace, scripted.script)
            models.use(scene.answer)
            for name in given.crews:
                unharmed = scene.run(name, "", set())
                for moment in given.moments:
                    asked = doubt = served = struck = tools = 0
                    hits = places(moment, unharmed, given.at_once)
                    for wanted in hits:
                        done = scene.run(name, moment, wanted)
                        runs, struck = runs + 1, struck + scene.kills
                        asked += done.asked.total()
                        doubt, served, tools = (
                            doubt + done.in_doubt, served + done.replayed, tools + done.tools_in_doubt
                        )  # fmt: skip
                        for what in wrong(name, scene, unharmed, done):
                            bad += 1
                            print(f"WRONG {name}, {moment}, at {sorted(wanted)}: {what}", flush=True)
                    kills += struck
                    if hits:
                        told = f"{asked} asked, {doubt} in doubt, {served} served; {tools} uses in doubt"
                        print(f"{name:14} {moment:9} {len(hits)} runs, {struck} kills: {told}", flush=True)
            if bad:
                print(fleet.log()[-20000:], file=sys.stderr)
    print(f"{runs} runs, {kills} kills, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
