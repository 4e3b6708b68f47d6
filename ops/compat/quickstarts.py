"""Files in the style of each framework's own quickstarts, by `runner submit FILE` and nothing else; and the examples
of docs/frameworks.md and of each framework's page, as they stand there.

    python ops/compat/quickstarts.py [--only NAME] [--keep FOLDER]

For each framework an environment is made with its newest release (``--keep`` keeps them). There each file is run by
Python alone, where it is one that does something, and then submitted as it is; both ask a model server that counts.
Exit code 0 if each run was completed, what it gave is what the file prints alone, and it asked as often.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY, FILES = Path(__file__).parents[2], Path(__file__).parent / "quickstarts"
sys.path.append(str(REPOSITORY / "ops" / "chaos"))

from installed import environment
from page import Example, examples
from vendors import Vendors, answer

from runner.testing import ModelServer

PACKAGES = {
    "pydantic-ai": ["pydantic-ai-slim[openai,anthropic]"],
    "openai-agents": ["openai-agents"],
    "langchain": ["langchain", "langchain-openai", "langgraph"],
    "google-adk": ["google-adk"],
    "llama-index": ["llama-index-core", "llama-index-llms-openai", "llama-index-embeddings-openai"],
    "smolagents": ["smolagents[openai,litellm]"],
    "agno": ["agno[os]", "openai", "anthropic", "sqlalchemy"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "agent-framework": ["agent-framework-core", "agent-framework-openai"],
    "strands": ["strands-agents[openai]", "strands-agents-tools"],
}
ASKED = ["--input", "prompt=What is the weather in New York?"]
TARGETS: dict[str, dict[str, list[str]]] = {
    "pydantic-ai": {
        "hello_world.py": [],
        "roulette_wheel.py": [],
        "bank_support.py": [],
        "stream_markdown.py": [],
        "joke_delegation.py": [],
    },
    "openai-agents": {"hello_world.py": [], "routing.py": [], "tools.py": [], "stream_text.py": [], "sessions.py": []},
    "langchain": {
        "create_agent.py": [],
        "real_world_agent.py": [],
        "graph_calculator.py": [],
        "graph_functional.py": [],
        "stream.py": [],
        "graph_app": ASKED,
    },
    "google-adk": {
        "multi_tool_agent": ASKED,
        "multi_tool_agent/agent.py": ASKED,
        "my_agent/agent.py": ASKED,
        "story_pipeline": ASKED,
        "run_it.py": [],
    },
    "llama-index": {"starter.py": [], "starter_rag.py": [], "joke_flow.py": [], "multi_agent.py": []},
    "smolagents": {"hello.py": [], "tool_calling.py": [], "managed.py": []},
    "agno": {"basic.py": [], "with_tools.py": [], "team.py": [], "workflow.py": [], "agno_assist.py": ASKED},
    "autogen": {"hello_world.py": [], "quickstart.py": [], "orchestration.py": [], "team.py": []},
    "agent-framework": {"hello_agent.py": [], "add_tools.py": []},
    "strands": {"hello.py": [], "my_agent/agent.py": [], "openai_model.py": [], "graph.py": []},
}
"""What is submitted, and with what: those without a prompt are run by Python, too."""
ON_THE_PAGE = {
    "Agents of any framework": "pydantic-ai",
    "pydantic-ai": "pydantic-ai",
    "OpenAI Agents SDK": "openai-agents",
    "LangChain and LangGraph": "langchain",
    "Google ADK": "google-adk",
    "LlamaIndex": "llama-index",
    "smolagents": "smolagents",
    "Agno": "agno",
    "AutoGen": "autogen",
    "Microsoft Agent Framework": "agent-framework",
    "Strands": "strands",
}
"""Where the example of each page is run. That of CrewAI's is followed by tests/worker/adapters/test_page.py."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(PACKAGES), help="some of them")
    parser.add_argument("--file", help="only targets with this in their name")
    parser.add_argument("--keep", type=Path, help="where environments are made, and found again")
    options = parser.parse_args()
    wrong, pages = 0, list(examples())
    print("| framework | file | completed | as alone | calls: run / alone |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as made:
        for name in options.only or PACKAGES:
            python = environment((options.keep or Path(made)).absolute() / name, PACKAGES[name])
            targets: list[tuple[str, list[str], Example | None]]
            targets = [(target, words, None) for target, words in TARGETS[name].items()]
            targets += [(one.words[0], [*one.words[1:]], one) for one in pages if ON_THE_PAGE[one.title] == name]
            for target, words, example in targets:
                about = f"{target} of its page" if example else target
                if options.file and options.file not in about:
                    continue
                row = tried(name, python, target, words, example)
                wrong += not (row["status"] == "completed" and row["same"] and row["calls"] == row["alone"])
                print(
                    f"| {name} | {about} | {row['status']} | {row['same']} | {row['calls']} / {row['alone']} |",
                    flush=True,
                )
                if row["why"]:
                    print(row["why"], file=sys.stderr, flush=True)
    return int(wrong > 0)


def tried(name: str, python: Path, target: str, words: list[str], example: Example | None) -> dict[str, Any]:
    """One target, or the ``example`` of a page alone in a folder: run by Python alone, and submitted."""
    with tempfile.TemporaryDirectory() as made, ModelServer(answer) as models, Vendors() as vendors:
        home = Path(made)
        environment = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(home)}
        environment |= models.environment | vendors.environment | {"OPENAI_API_BASE": models.url}
        counts, said = [], []
        for how in ["runner", *(["python"] if not words else [])]:
            folder = home / how
            if example:
                (folder / example.file).parent.mkdir(parents=True)
                (folder / example.file).write_text(example.code)
            else:
                shutil.copytree(FILES / name, folder)
            before = models.requests + vendors.requests
            command = (
                [python.parent / "runner", "submit", target, "--json", *words] if how == "runner" else [python, target]
            )
            out, err = home / f"{how}.out", home / f"{how}.err"
            with out.open("w") as stdout, err.open("w") as stderr:
                subprocess.run(
                    command, cwd=folder, env=environment, stdout=stdout, stderr=stderr, timeout=600, check=False
                )
            counts.append(models.requests + vendors.requests - before)
            said.append((out.read_text(), err.read_text()))
    told = json.loads(said[0][0]) if said[0][0].startswith("{") else {"status": "refused"}
    result = told.get("result") or ""
    same = not words and plain(said[-1][0]) == plain(result if isinstance(result, str) else json.dumps(result))
    why = ""
    if told["status"] != "completed" or not (same or words):
        alone = said[-1][0][-1500:] + said[-1][1][-600:]
        why = f"--- {told.get('error')} {said[0][1][-1500:]}\n--- gave\n{result}\n--- alone\n{alone}"
    return {
        "status": told["status"],
        "same": same or (bool(words) and bool(result)),
        "calls": counts[0],
        "alone": counts[-1],
        "why": why,
    }


def plain(text: str) -> str:
    """Without what changes from one run to the next: ids, times, colours, how wide a terminal is."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    text = re.sub(r"\d+(\.\d+)?( seconds|s\b)|datetime\.datetime\([^()]*\)", "", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", text)
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
