"""Submits the crew of each of the given folders, from one process that has CrewAI, and waits for all.

One JSON object with their results is written to the last argument.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

from runner.client import Client

if __name__ == "__main__":
    with Client(os.environ["RUNNER_REDIS_URL"]) as client:
        handles = {Path(one).name: client.submit(f"{one}/crew.py", {"x": "owls"}) for one in sys.argv[1:-1]}
        found = {name: dataclasses.asdict(handle.wait(250)) for name, handle in handles.items()}
    Path(sys.argv[-1]).write_text(json.dumps(found))
