"""Environments as runs ask for them, on workers of two Pythons: python ops/chaos/environments.py --other PYTHON

PYTHON is an interpreter of another version than this one, with this product installed. Packages come from the index
that uv uses. Printed is a table: which Python each run had, how many environments were built, and how long the parts
took. Then the 30 packages are built once more, with six kills by SIGKILL on the way: of uv, of the process that waits
for it, and of all of the worker; when uv begins to install, and when it has unpacked something. Exit code 0 if each run
had the Python and the packages that it asks for, each environment was built once, and no kill cost an attempt.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from runner import Client
from runner.testing import Fleet, RedisServer, eventually

CREW = """
import sys
from runner import Crew, Task

def say(ctx):
    from importlib import metadata
    found = len([one for one in PACKAGES if metadata.version(one)])
    return f"{sys.version_info[0]}.{sys.version_info[1]} {found}"

PACKAGES = %r
crew = Crew(tasks=[Task(name="say", run=say)])
"""
PACKAGES = [
    *("attrs", "certifi", "charset-normalizer", "click", "colorama", "idna", "iniconfig", "itsdangerous"),
    *("jinja2", "markdown", "markupsafe", "more-itertools", "packaging", "pluggy", "pygments", "pyparsing"),
    *("python-dateutil", "pytz", "requests", "six", "sniffio", "soupsieve", "tabulate", "toml"),
    *("tqdm", "typing-extensions", "urllib3", "wcwidth", "werkzeug", "zipp"),
]
BLOWS = [(whom, moment) for whom in ("uv", "who waits for it", "the worker") for moment in ("install", "unpacked")]
WITHIN = 300  #: seconds for a build and a run in it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="an interpreter of another version")
    other = parser.parse_args().other
    own, theirs = version(Path(sys.executable)), version(other)
    wrong = 0
    print(f"| asks for | workers | run | Python | packages | built so far | submitted to started |\n{'|---' * 7}|")
    with tempfile.TemporaryDirectory() as made, RedisServer() as server, Client(server.url) as client:
        folder = Path(made)
        settings = {"RUNNER_CACHE_DIR": str(folder / "cache"), "RUNNER_ENVIRONMENTS": "on"}
        settings |= {"PATH": f"{other.resolve().parent}:{os.environ['PATH']}"}
        fleets = {
            own: Fleet(server.url, folder / "own", settings=settings, starts_within=200),
            theirs: Fleet(server.url, folder / "theirs", settings=settings, python=str(other), starts_within=200),
        }
        for fleet in fleets.values():
            fleet.folder.mkdir()
        with fleets[own], fleets[theirs]:
            for asked, running, packages in (
                (own, (own, theirs), []),
                (theirs, (own, theirs), []),
                (theirs, (own,), []),
                (own, (own,), PACKAGES),
            ):
                workers = [fleets[one].start() for one in running]
                file = written(folder / f"{asked}-{len(running)}-{len(packages)}", asked, packages)
                for number in ("first", "second"):
                    run = client.submit(file)
                    result = run.wait(WITHIN)
                    told = str(result.result or result.error)
                    built = sum(fleet.log().count("built the environment") for fleet in fleets.values())
                    wrong += told != f"{asked} {len(packages)}"
                    found = {event.type: event.at for event in run.events()}
                    took = (found["task_started"] - run.record.created_at) / 1000 if "task_started" in found else -1
                    python, _, many = told.partition(" ")
                    what = f"{asked}, {len(packages)} packages | {' and '.join(running)}"
                    print(f"| {what} | {number} | {python} | {many} | {built} | {took:.2f} s |", flush=True)
                for worker in workers:
                    worker.kill_group()
            for line in re.findall(r"built the environment .*", "".join(fleet.log() for fleet in fleets.values())):
                print(line, file=sys.stderr)
        with tempfile.TemporaryDirectory() as cache:
            wrong += not killed(folder, client, Fleet(server.url, folder / "killed", starts_within=200), Path(cache))
    return int(wrong > 0)


def killed(folder: Path, client: Client, fleet: Fleet, cache: Path) -> bool:
    """Whether a run has its packages and lost no attempt, when what builds them is killed at each of the `BLOWS`."""
    fleet.settings = {"RUNNER_CACHE_DIR": str(cache), "RUNNER_ENVIRONMENTS": "on"}
    fleet.folder.mkdir()
    with fleet:
        worker = fleet.start()
        run = client.submit(written(folder / "blows", version(Path(sys.executable)), PACKAGES))
        for whom, moment in BLOWS:
            program, waits = eventually(lambda at=moment: building(cache, at), within=WITHIN, why=f"uv: {moment}")
            if whom == "the worker":
                worker.kill_group()
                worker = fleet.start()
            else:
                os.kill(program if whom == "uv" else waits, signal.SIGKILL)
            eventually(lambda pid=program: pid not in installers(cache), within=WITHIN, why="uv has ended")
        result = run.wait(WITHIN)
        log = fleet.log()
        began, done = log.count("building the environment"), log.count("built the environment")
    print(
        f"{len(BLOWS)} kills: begun {began} times, built {done} times, {result.result}, {result.recoveries} recoveries"
    )
    packages = str(result.result).partition(" ")[2]
    return (began, done, result.recoveries, packages) == (len(BLOWS) + 1, 1, 0, str(len(PACKAGES)))


def building(cache: Path, moment: str) -> tuple[int, int] | None:
    """The uv that installs there, and who waits for it; at the moment "unpacked" if it has unpacked something."""
    if moment == "unpacked" and not any(cache.glob("environments/*/lib/*/site-packages/*.dist-info")):
        return None
    return next(iter(installers(cache).items()), None)


def installers(cache: Path) -> dict[int, int]:
    """The uv that installs there, with its parent."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, TypeError):
            words = (one / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"uv") and b"install" in words and any(os.fsencode(cache) in word for word in words):
                found[int(one.name)] = int(re.search(r"\) \w (\d+)", (one / "stat").read_text())[1])
    return found


def version(python: Path) -> str:
    code = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def written(folder: Path, python: str, packages: list[str]) -> Path:
    folder.mkdir()
    (folder / ".python-version").write_text(f"{python}\n")
    if packages:
        (folder / "requirements.txt").write_text("".join(f"{one}\n" for one in packages))
    (folder / "crew.py").write_text(CREW % (packages,))
    return folder / "crew.py"


if __name__ == "__main__":
    sys.exit(main())
