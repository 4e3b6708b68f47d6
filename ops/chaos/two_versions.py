"""Workers of two versions side by side: python ops/chaos/two_versions.py --minutes 10

The last released commit (or --old COMMIT) is unpacked from this repository's history and run by this interpreter,
beside what stands here. Both submit runs; workers of both are killed with -9 and swapped with SIGTERM for others, up
and down, at random: for a while there are only old ones, only new ones, or both. Each step of a run appends a line to a
file, which the product knows nothing of. Exit code 0 if every run completed with the outputs that it should have, and
no step was done again but those in doubt; else 1, with what is wrong. 75 if the history is not here.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from crews.large import STEPS, text_of

from runner.client import Client, prepare
from runner.testing import Fleet, RedisServer, WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
CREW = Path(__file__).resolve().parent / "crews" / "large.py"
RELEASED = "409667e"
TASKS = "abcdef"
PHASES = (("old",), ("old", "new"), ("new",), ("new", "old"))
NO_HISTORY = 75


def unpacked(commit: str, folder: Path) -> bool:
    """Have that commit's files there; False where it is not in the history."""
    packed = subprocess.run(
        ["git", "-C", ROOT, "archive", "--format=tar", commit, "runner", "tasks", "providers"],
        capture_output=True, check=False,
    )  # fmt: skip
    if packed.returncode:
        return False
    with tempfile.TemporaryFile() as file:
        file.write(packed.stdout)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            tar.extractall(folder, filter="tar")
    return True


class Storm:
    """The workers of both versions, the runs that both submit, and what is done to the workers."""

    def __init__(self, fleet: Fleet, client: Client, old: Path, rand: random.Random, workers: int) -> None:
        self.fleet, self.client, self.rand, self.many = fleet, client, rand, workers
        # What lies in the working directory is the new version.
        self.environment = {
            version: {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"} for version, root in (("old", old), ("new", ROOT))
        }
        for version, environment in self.environment.items():
            command = [sys.executable, "-c", "from runner.providers.redis import scripts; print(scripts.__file__)"]
            found = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, check=True, text=True
            ).stdout.strip()
            if not Path(found).is_relative_to(environment["PYTHONPATH"]):
                raise RuntimeError(f"what is to be the {version} version has {found}")
        self.versions: dict[int, str] = {}
        self.done: collections.Counter[str] = collections.Counter()
        self.runs: dict[str, str] = {}
        self.crew = prepare(str(CREW))
        self.submitting: tuple[str, subprocess.Popen[str]] | None = None

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.fleet.workers if worker.alive()]

    def fill(self, versions: tuple[str, ...]) -> None:
        """As many workers as there should be, of these versions."""
        for _ in range(self.many - len(self.alive)):
            version = self.rand.choice(versions)
            one = self.fleet.start("--concurrency", "2", wait=False, **self.environment[version])
            self.versions[one.pid] = version

    def blow(self, versions: tuple[str, ...]) -> None:
        """Something happens to a worker; to one that has no place here any more it is SIGTERM."""
        strangers = [worker for worker in self.alive if self.versions[worker.pid] not in versions]
        worker = self.rand.choice(strangers or self.alive)
        kind = "SIGTERM" if strangers else self.rand.choice(("SIGTERM", "child", "child", "group"))
        if not worker.about() or not worker.children():
            return  # it is just coming up, or going
        with contextlib.suppress(ProcessLookupError):
            if kind == "SIGTERM":
                worker.terminate()
            elif kind == "group":
                worker.kill_group()
            else:
                os.kill(self.rand.choice(worker.children()), signal.SIGKILL)
            self.done[f"{kind} of {self.versions[worker.pid]}"] += 1

    def submit(self, at_once: int) -> None:
        """One more run, of the new version or the old, if there are not enough."""
        if self.submitting is not None:
            label, process = self.submitting
            if process.poll() is None:
                return
            out, err = process.communicate()
            if process.returncode:
                raise RuntimeError(f"the old version does not submit: {err}")
            self.runs[label] = json.loads(out)["run_id"]
            self.submitting = None
        if sum(self.client.run(run).status == "running" for run in self.runs.values()) >= at_once:
            return
        number = len(self.runs)
        if number % 2:
            label = f"old-{number}"
            arguments = ("submit", str(CREW), "--detach", "--json", "--input", f"label={label}")
            self.submitting = label, self.fleet.popen(*arguments, **self.environment["old"])
        else:
            label = f"new-{number}"
            self.runs[label] = self.client.submit(self.crew, {"label": label}).id

    def end(self, within: float) -> None:
        """The runs come to their end, with workers of both versions there."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.submitting is not None or any(
                self.client.run(run).status == "running" for run in self.runs.values()
            ):
                if {self.versions[worker.pid] for worker in self.alive} != {"old", "new"} and len(
                    self.alive
                ) >= self.many:
                    self.alive[0].kill_group()
                missing = {"old", "new"} - {self.versions[worker.pid] for worker in self.alive}
                self.fill(tuple(missing) or ("old", "new"))
                self.submit(0)
                time.sleep(0.2)
            else:
                return


def reckon(storm: Storm, account: Path) -> tuple[dict[str, object], list[str]]:
    """The file that the steps wrote against what the product tells, and every output against what it should be."""
    did = collections.Counter(account.read_text().splitlines())
    again = dict.fromkeys(storm.runs, 0)
    for line, times in did.items():
        again[line.split()[0]] += times - 1
    wrong, doubt, recovered, completed, protocols = [], 0, 0, 0, collections.Counter()
    for label, run_id in storm.runs.items():
        handle = storm.client.run(run_id)
        record = handle.record
        in_doubt = record.in_doubt
        doubt += in_doubt
        recovered += record.recoveries
        completed += record.status == "completed"
        protocols[storm.client.store.runs.field(run_id, "protocol") or "1"] += 1
        outputs = {task: one.raw for task, one in storm.client.store.runs.committed(run_id, "main").items()}
        checks = {
            f"it is {record.status}: {record.error}": record.status == "completed",
            "an output is wrong or missing": outputs == {task: text_of(label, task) for task in TASKS},
            "a step is missing": all(did[f"{label} {t} {s}"] for t in TASKS for s in range(STEPS)),
            f"{again[label]} steps done again, {in_doubt} in doubt": again[label] <= in_doubt,
        }
        wrong += [f"{label} ({run_id}): {what}" for what, right in checks.items() if not right]
    rows = {
        "runs completed": f"{completed} of {len(storm.runs)}",
        "... submitted by the old version": sum(label.startswith("old") for label in storm.runs),
        "... ended as of protocol": ", ".join(f"{number}: {many}" for number, many in sorted(protocols.items())),
        "blows": f"{storm.done.total()} ({', '.join(f'{many} {kind}' for kind, many in storm.done.most_common())})",
        "workers started": ", ".join(f"{many} {v}" for v, many in collections.Counter(storm.versions.values()).items()),
        "hand-overs": recovered,
        "steps": len(did),
        "... done again": sum(again.values()),
        "... in doubt": doubt,
    }
    return rows, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=4, help="runs in flight")
    parser.add_argument("--pace", type=float, default=3, help="the most seconds between two blows")
    parser.add_argument("--phase", type=float, default=25, help="seconds until other versions are to be there")
    parser.add_argument("--end", type=float, default=300, help="seconds for the last runs to end")
    parser.add_argument("--old", default=RELEASED, metavar="COMMIT")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    rand = random.Random(given.seed)
    print(f"seed {given.seed}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="two-")))
        if not unpacked(given.old, folder / "old"):
            print(f"{given.old} is not in the history that is here: git fetch --unshallow", file=sys.stderr)
            return NO_HISTORY
        account = folder / "account"
        account.touch()
        server = stack.enter_context(RedisServer())
        settings = {"RUNNER_MAX_ATTEMPTS": "20", "RUNNER_LEASE": "3", "TWO_VERSIONS_ACCOUNT": str(account)}
        fleet = stack.enter_context(Fleet(server.url, settings=settings))
        storm = Storm(fleet, stack.enter_context(Client(server.url)), folder / "old", rand, given.workers)
        began = shown = time.monotonic()
        blow = began + given.pace
        while (now := time.monotonic()) < began + given.minutes * 60:
            versions = PHASES[int((now - began) / given.phase) % len(PHASES)]
            storm.fill(versions)
            if now > blow:
                storm.blow(versions)
                blow = now + rand.uniform(0.2, given.pace)
            storm.submit(given.at_once)
            if now - shown > 20:
                shown = now
                print(f"{now - began:5.0f} s  {len(storm.runs)} runs  {storm.done.total()} blows", file=sys.stderr)
            time.sleep(0.1)
        storm.end(given.end)
        rows, wrong = reckon(storm, account)
        rows["seconds"] = f"{time.monotonic() - began:.0f}"
        width = max(map(len, rows))
        print("\n".join(f"{name:<{width}}  {value}" for name, value in rows.items()))
        if wrong:
            print(f"{len(wrong)} WRONG, with --seed {given.seed}:", *wrong[:40], sep="\n  ")
            print(fleet.log()[-20000:], file=sys.stderr)
            return 1
    print("every run completed; no step was done again but those in doubt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
