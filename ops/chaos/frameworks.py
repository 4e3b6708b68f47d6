"""Agents of other frameworks, killed at each call of a model and each use of a tool: python ops/chaos/frameworks.py

For each framework an environment is made with its newest release (``--only NAME`` for some, ``--keep FOLDER`` to keep
them). There an agent, as its author would write it, makes four calls of a model server that counts, and uses a tool
three times; its process is killed with SIGKILL in flight at each of the seven. Exit code 0 if each run gave what it
gives alone, and no call was made and no tool used more often than needed and in doubt.

With ``--context`` its tool counts in the context of the framework, and what it counted is in the result.
"""

import argparse
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

from context_agents import CONTEXTS
from context_agents import ELSEWHERE as COUNTED_ELSEWHERE
from framework_agents import AGENTS, ELSEWHERE, OUTPUTS
from installed import environment

USES = 3
PACKAGES = {
    "pydantic-ai": ["pydantic-ai-slim[openai]", "httpx"],
    "openai-agents": ["openai-agents"],
    "openai-agents responses": ["openai-agents"],
    "langchain": ["langchain", "langchain-openai", "langgraph"],
    "langgraph": ["langgraph", "openai"],
    "langgraph store": ["langchain", "langchain-openai", "langgraph"],
    "smolagents": ["smolagents[openai]"],
    "agno": ["agno", "openai"],
    "llama-index": ["llama-index-core", "llama-index-llms-openai-like"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "google-adk": ["google-adk", "litellm", "mcp"],
    "google-adk aiohttp": ["google-adk", "litellm", "mcp", "aiohttp"],
    "strands": ["strands-agents[openai]"],
}
"""What each is installed with."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(PACKAGES), help="some of them")
    parser.add_argument("--keep", type=Path, help="where environments are made, and found again")
    parser.add_argument("--context", action="store_true", help="agents whose tool counts in the framework's context")
    parser.add_argument("--inside", choices=sorted(PACKAGES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(killed(options.inside, in_context=options.context)))
        return 0
    with tempfile.TemporaryDirectory() as made:
        has = {**CONTEXTS, **COUNTED_ELSEWHERE} if options.context else {**AGENTS, **ELSEWHERE}
        known = [name for name in PACKAGES if name in has]
        return table(options.only or known, options.keep or Path(made), ["--context"] if options.context else [])


def table(names: list[str], folder: Path, more: list[str]) -> int:
    """One row for each; 1 if something was lost or done too often."""
    print("| framework | version | result | calls made / needed + in doubt | uses made / needed + in doubt |")
    print("|---|---|---|---|---|", flush=True)
    wrong = 0
    for name in names:
        python = environment(folder / name.replace(" ", "-"), PACKAGES[name])
        command = [str(python), __file__, "--inside", name, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {name} | | {done.stderr.strip().splitlines()[-1][:200]} | | |", flush=True)
            wrong += 1
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        accounts = ((row["calls"], row["paid"], USES + 1), (row["uses"], row["used"], USES))
        is_right = all(made == sum(told) and told == [due, due] for made, told, due in accounts)  # each is hit once
        wrong += not (row["same"] and is_right)
        calls = f"{row['calls']} / {row['paid'][0]} + {row['paid'][1]}"
        uses = f"{row['uses']} / {row['used'][0]} + {row['used'][1]}"
        print(f"| {name} | {row['version']} | {'same' if row['same'] else 'OTHER'} | {calls} | {uses} |", flush=True)
    return int(wrong > 0)


def killed(name: str, *, in_context: bool = False) -> dict[str, Any]:
    """One run, killed at each call and each use; what the model server, the tool and the account counted."""
    from importlib.metadata import version

    from runner.client import Client
    from runner.testing import Answer, Call, Fleet, ModelServer, RedisServer

    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def answer(request: Any) -> Answer:
        at = request.turn if name == "smolagents" else len(request.results)
        with lock:
            seen[at] += 1
            first = seen[at] == 1
        for child in worker.children() if first else ():
            os.kill(child, signal.SIGKILL)
        if at < USES:
            return Answer(calls=[Call("look", {"i": at})])
        return Answer(calls=[Call("final_answer", {"answer": "done"})]) if name == "smolagents" else Answer("done")

    with tempfile.TemporaryDirectory() as made, ModelServer(answer) as models, RedisServer() as server:
        trace, file = Path(made) / "trace", Path(made) / "agent.py"
        agents = {**CONTEXTS, **COUNTED_ELSEWHERE} if in_context else {**AGENTS, **ELSEWHERE}
        file.write_text(agents[name].format(url=models.url, trace=str(trace), dies=list(range(USES))))
        with Fleet(server.url) as fleet:
            worker = fleet.start("--concurrency", "1", "--pool", "prefork")
            result = Client(server.url).submit(file, {} if in_context else {"prompt": "Dig."}).wait(600)
        tools = result.ledger["tools"]
        # The last answer of smolagents is a tool of its own.
        extra = 1 if name == "smolagents" else 0
        return {
            "version": version(PACKAGES[name][0].partition("[")[0]),
            "same": result.outputs.get("main", "").endswith(f"done {list(range(USES))}")
            if in_context
            else result.outputs == {"agent": OUTPUTS.get(name, "done")},
            "calls": models.requests,
            "paid": [result.ledger["paid"], result.ledger["in_doubt"]],
            "uses": len(trace.read_text().split()),
            "used": [tools["paid"] - extra, tools["in_doubt"]],
        }


if __name__ == "__main__":
    sys.exit(main())
