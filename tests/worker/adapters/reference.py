"""Runs the crew.py of each of the given folders as ``python crew.py`` would, each in a fork of this process.

One JSON object with their results is written to the last argument.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import crewai
from crewai.rag.chromadb import config


def told(result):
    """What a kickoff gave."""
    if isinstance(result, str):  # a flow's
        return {"raw": result, "json": None, "tasks": None}
    assert isinstance(result, crewai.CrewOutput)
    data = result.pydantic.model_dump(mode="json") if result.pydantic else result.json_dict
    return {"raw": result.raw, "json": data, "tasks": [output.raw for output in result.tasks_output]}


def run(folder, out):
    home = f"{folder}-home"
    Path(home).mkdir()
    os.environ.update(HOME=home, CREWAI_STORAGE_DIR=f"{home}/storage", TRACE=f"{folder}/trace")
    config.DEFAULT_STORAGE_PATH = f"{home}/storage"  # looked up when CrewAI was imported
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    out.write_text(json.dumps(told(runpy.run_path("crew.py", run_name="__main__")["result"]), default=str))


if __name__ == "__main__":
    folders = [Path(one) for one in sys.argv[1:-1]]
    children = {}
    for folder in folders:
        if (pid := os.fork()) == 0:
            status = 1
            try:
                run(folder, folder / "result.json")
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children[pid] = folder
    failed = [children[pid].name for pid, status in (os.wait() for _ in children) if status]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    Path(sys.argv[-1]).write_text(json.dumps({f.name: json.loads((f / "result.json").read_text()) for f in folders}))
