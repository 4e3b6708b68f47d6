"""A model server in a process of its own: ``python -m runner.testing.model_server --port 8000 --script rules.json``.

It prints its address, answers until it is told to end, and then prints what it counted. ``GET /_requests`` gives the
counts at any time, ``GET /_requests?log`` the bodies too, ``POST /_reset`` begins again at 0.
"""

import argparse
import importlib
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from runner.modelserver import Answer, Call, ModelRequest, ModelServer, Rule, Script

__all__ = ["Answer", "Call", "ModelRequest", "ModelServer", "Rule", "Script", "main"]


def read_script(where: str) -> Any:
    """Read the script that ``where`` names: a JSON file of rules, or ``module:name``. Raises `ValueError`."""
    if where.endswith(".json"):
        try:
            rules = json.loads(Path(where).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from None
        return [Rule.from_dict(rule) for rule in (rules if isinstance(rules, list) else [rules])]
    module, _, name = where.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "script")
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{where}: {error}; it takes rules.json or module:name") from None


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner.testing.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (the default)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--script", metavar="RULES.json|MODULE:NAME", help="what it answers")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="that every answer takes")
    parser.add_argument("--log", metavar="FILE", help="a line of JSON for each request")
    given = parser.parse_args(argv)
    try:
        script = read_script(given.script) if given.script else None
        server = ModelServer(script, port=given.port, host=given.host, delay=given.delay, log_file=given.log)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stopped = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stopped.set())
    with server:
        print(server.url, flush=True)
        stopped.wait()
    print(json.dumps(server.summary()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
