"""Agents of any framework, killed at each call of a model and each use of a tool: python ops/chaos/matrix.py

Each row is a program as its author would write it, which makes six calls of a model and uses a tool five times. It is
run alone; then as ``runner submit`` does it, while its process is killed with SIGKILL at each call and each use: once
in flight, and once when it has been answered. Exit code 0 if each gave what it gives alone, asked what it asks alone,
byte for byte, and nothing was done more often than needed and in doubt.

An environment is made for each framework (``--only ROW`` for some, ``--keep FOLDER`` to keep them). With
``--side-by-side`` the model wants several uses at once: three, then two. With ``--midway`` it is killed also when half
of each answer has come; with ``--elsewhere`` all of its worker is while a call is in flight, and another takes over.
Then ``--other PYTHON`` makes each second worker one of that interpreter, which has the same packages and this product.
"""

import argparse
import ast
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from installed import environment
from matrix_account import Seen, wrong
from matrix_agents import ROWS as AGENTS
from matrix_clients import CLIENTS
from matrix_mcp import SERVED
from matrix_page import commit, note
from matrix_rpc import RPC, RPC_CLIENTS

ROWS = {**AGENTS, **CLIENTS, **SERVED, **RPC}
PLACES = {
    "main": [
        "pydantic-ai-slim[openai,anthropic,google]", "openai-agents", "langchain", "langchain-openai", "langgraph",
        "anthropic", "openai", "google-genai", "mistralai", "boto3", "requests", "aiohttp", "azure-ai-inference",
        "litellm",
        "fastmcp-slim[client]",
    ],
    "google-adk": ["google-adk", "litellm", "mcp", "aiohttp"],
    "smolagents": ["smolagents[openai,mcp]", "mcp<2"],
    "agno": ["agno", "openai", "mcp", "fastmcp>=4,<5"],
    "llama-index": ["llama-index-core", "llama-index-llms-openai-like", "llama-index-tools-mcp"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "strands": ["strands-agents[openai,gemini]"],
    "msaf": ["agent-framework-core", "agent-framework-openai"],
    "crewai": ["crewai"],
    "rpc": ["xai-sdk", "pydantic-ai-slim[xai]", "google-ai-generativelanguage", "google-cloud-aiplatform"],
    "mcp1": ["langchain", "langchain-openai", "langchain-mcp-adapters", "autogen-agentchat", "autogen-ext[openai,mcp]"],
}  # fmt: skip
"""What each environment has besides this product."""
DIES = """
import os, signal
from runner.core import fault_points


def die(point):
    if point == "step recorded, task not ended":
        with open(@DEATHS@, "a") as file:
            file.write("died\\n")
        os.kill(os.getpid(), signal.SIGKILL)


fault_points.reached = die
"""
"""Kills a process at each call and each use that it has recorded just now."""
WORKER = "--concurrency", "1", "--pool", "prefork"
ALIKE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""How each program is run, alone and killed: without asking the network for what a model costs."""
WITHIN = 3600  #: seconds for a program alone, and for its run with all kills
ONE_BY_ONE, SIDE_BY_SIDE = (1, 1, 1, 1, 1), (3, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="the rows whose names begin so")
    parser.add_argument("--keep", type=Path, help="where environments are made, and found again")
    parser.add_argument("--side-by-side", action="store_true", help="several uses at once")
    parser.add_argument("--midway", action="store_true", help="kill it also when half of each answer has come")
    parser.add_argument(
        "--elsewhere", action="store_true", help="kill the worker of a call in flight: another takes over"
    )
    parser.add_argument("--other", metavar="PYTHON", help="every other worker is this interpreter's: with --elsewhere")
    parser.add_argument(
        "--cold", action="store_true", help="each process imports the framework itself, after a kill too"
    )
    parser.add_argument("--note", action="store_true", help="write what is exact down in matrix.jsonl, for the docs")
    parser.add_argument("--alone", action="store_true", help="only what each gives alone")
    parser.add_argument("--inside", choices=sorted(ROWS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    batches = SIDE_BY_SIDE if options.side_by_side else ONE_BY_ONE
    if options.inside:
        how = {name: getattr(options, name) for name in ("midway", "elsewhere", "cold", "other")}
        print(json.dumps(killed(options.inside, batches, only_alone=options.alone, **how)))
        return 0
    more = [
        f"--{name.replace('_', '-')}"
        for name in ("side_by_side", "midway", "elsewhere", "cold", "alone")
        if getattr(options, name)
    ]
    more += ["--other", options.other] if options.other else []
    names = [name for name in ROWS if not options.only or name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory() as made:
        return table(names, options.keep or Path(made), more, noted=options.note)


def table(names: list[str], folder: Path, more: list[str], *, noted: bool) -> int:
    """One row for each; 1 if something was lost or done too often."""
    print("| what | version | kills | result | requests | calls / needed + in doubt | uses / needed + in doubt |")
    print("|---|---|---|---|---|---|---|", flush=True)
    failed = 0
    for name in names:
        python, at = environment(folder / ROWS[name].place, PLACES[ROWS[name].place]), commit()
        done = subprocess.run(
            [str(python), __file__, "--inside", name, *more], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"| {name} | | | {(done.stderr.strip().splitlines() or [''])[-1][:300]} | | |", flush=True)
            failed += 1
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        failed += bool(row["wrong"])
        calls, uses = (f"{made} / {paid} + {doubt}" for made, paid, doubt in (row["calls"], row["uses"]))
        said = ["same" if row[one] else "OTHER" for one in ("same", "bytes")]
        print(f"| {name} | {row['version']} | {row['kills']} | {' | '.join(said)} | {calls} | {uses} |", flush=True)
        if row["wrong"]:
            print(f"{row['wrong']}\n", file=sys.stderr, flush=True)
        elif noted and not more:
            note(name, row, ROWS, at)
    return int(failed > 0)


def written(folder: Path, row: Any, root: str, *, kills: bool) -> Path:
    """Its file, in a folder of its own."""
    folder.mkdir()
    file, trace = folder / "agent.py", folder / "trace"
    marks = {"@URL@": f"{root}/v1", "@ROOT@": root, "@TRACE@": repr(str(trace)), "@KILLS@": str(kills)}
    code: str = row.code
    for mark, value in marks.items():
        code = code.replace(mark, value)
    file.write_text(code)
    trace.touch()
    return file


def printed(file: Path) -> str:
    """What it prints when Python alone runs it."""
    environment = {**os.environ, **ALIKE}
    ran = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=False, timeout=WITHIN, env=environment
    )
    if ran.returncode:
        raise SystemExit(f"alone it fails: {ran.stderr[-2000:]}")
    return ran.stdout.rstrip("\n")


def ready(folder: Path, file: Path, *, cold: bool) -> dict[str, str]:
    """The environment of a worker that has imported what the file does, so that its processes begin at once: unless
    ``cold``."""
    imports = [one for one in ast.parse(file.read_text()).body if isinstance(one, ast.Import | ast.ImportFrom)]
    lines = ["import sys", 'if "worker" in sys.orig_argv:  # of which the processes are forks', "    pass"]
    lines += [f"    {ast.unparse(one)}" for one in imports if not cold and getattr(one, "module", "") != "runner"]
    (folder / "sitecustomize.py").write_text(
        "\n".join(lines) + DIES.replace("@DEATHS@", repr(str(file.parent / "deaths")))
    )
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {"PYTHONPATH": path, **ALIKE}


def killed(
    name: str,
    batches: tuple[int, ...],
    *,
    only_alone: bool = False,
    midway: bool = False,
    elsewhere: bool = False,
    cold: bool = False,
    other: str | None = None,
) -> dict[str, Any]:
    """What came of one row: alone, and with a kill at each call and each use."""
    from importlib.metadata import version

    from matrix_models import Came, Models
    from matrix_rpc import RpcModels

    from runner.client import Client
    from runner.testing import Fleet, RedisServer

    row = ROWS[name]
    server_of = RpcModels if name in RPC else Models
    with tempfile.TemporaryDirectory() as made, server_of(batches, row.last) as models:
        file = written(Path(made) / "alone", row, models.root, kills=False)
        alone, needed = printed(file), models.forget()
        used = Counter((file.parent / "trace").read_text().split())
        if only_alone or used.total() != sum(batches) or needed.total() != len(batches) + 1:
            raise SystemExit(f"alone: {needed.total()} calls, {used.total()} uses, {alone[-500:]!r}")
        file = written(Path(made) / "killed", row, models.root, kills=True)
        hit = Counter[bytes]()
        lock, done = threading.Lock(), threading.Event()

        def kill(came: Came, whole: bool) -> None:
            with lock:
                hit[came.request] += 1
                if whole:
                    return fleet.workers[-1].kill_group()
                for child in fleet.workers[-1].children():
                    os.kill(child, signal.SIGKILL)
                return None

        def start() -> None:
            for fleet.python in itertools.cycle((sys.executable, other or sys.executable)):
                if done.is_set():
                    return
                fleet.start(*WORKER, wait=False, **about)
                while not done.wait(0.05) and fleet.workers[-1].process.poll() is None:
                    pass

        with RedisServer() as server, Fleet(server.url, starts_within=300) as fleet:
            about = ready(Path(made), file, cold=cold)
            starting = threading.Thread(target=start)
            starting.start()
            models.asked = lambda came: kill(came, elsewhere) if came.before == 0 else None
            models.midway = lambda came: kill(came, False) if midway and came.before == 1 else None
            try:
                result = (
                    Client(server.url)
                    .submit(f"{file}:main()" if name in CLIENTS or name in RPC_CLIENTS else file, {})
                    .wait(WITHIN)
                )
            finally:
                done.set()
                starting.join()
        seen = Seen(
            models.forget(),
            Counter((file.parent / "trace").read_text().split()),
            hit,
            Counter(one.suffix[1:] for one in file.parent.glob("trace.*")),
            len((file.parent / "deaths").read_text().split()),
        )
        how = {"moments": 1 + midway, "ends": int(bool(row.last)), "one_by_one": batches == ONE_BY_ONE}
        problems = wrong(Seen(needed, used), seen, result.ledger, **how)
        same = list(result.outputs.values()) == [alone]
        found: dict[str, Any] = {
            "version": version(row.package),
            "kills": seen.kills,
            "same": same,
            "bytes": set(seen.asked) == set(needed),
            "calls": [seen.asked.total(), needed.total(), result.ledger["in_doubt"]],
            "uses": [seen.used.total(), used.total(), result.ledger["tools"]["in_doubt"]],
            "wrong": "",
        }
        if problems or not same:
            found["wrong"] = json.dumps(
                {
                    "wrong": problems, "alone": alone, "run": result.outputs, "error": result.error,
                    "ledger": str(result.ledger), "recoveries": result.recoveries, "uses": seen.used,
                    "new requests": [one.decode(errors="replace")[:3000] for one in set(seen.asked) - set(needed)],
                    "first": [one.decode(errors="replace")[:3000] for one in [*needed][:3]],
                },
                indent=1,
            )  # fmt: skip
        return found


if __name__ == "__main__":
    sys.exit(main())
