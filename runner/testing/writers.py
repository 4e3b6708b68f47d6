"""Writers for the conformance suite: a line of checkpoints, written here or by another process."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from runner.providers import inflight
from runner.providers.base import BaseProvider, CheckpointInfo


def write_line(
    provider: BaseProvider,
    location: str,
    *,
    name: str = "",
    count: int,
    branch: str = "main",
    parent_id: str | None = None,
    keep: int | None = None,
) -> list[str]:
    """Write checkpoints, each the parent of the next. Returns the ids.

    With ``keep``, as a run in flight does: each write pins the newest one, and prunes. `over` releases them.
    """
    ids = []
    for i in range(count):
        data, before = json.dumps({"name": name, "i": i}), parent_id
        with contextlib.nullcontext() if keep is None else inflight.marking_ahead():
            where = provider.checkpoint(data, location, parent_id=parent_id, branch=branch)
            parent_id = provider.extract_id(where)
            if keep is not None:
                provider.hold(where, before)
        ids.append(parent_id)
        if keep is not None:
            provider.prune(location, keep, branch=branch, head=parent_id)
    return ids


def over(provider: BaseProvider, location: str, *heads: str) -> None:
    """Release the checkpoints that these runs pin; without arguments, all of this process."""
    for info in provider.checkpoints(location):
        if not heads or info.id in heads:
            provider.release(info.location)


def write_and_stay(provider: BaseProvider, location: str, *, signal: str, **line: Any) -> list[str]:
    """`write_line` for a running run. It reports by a checkpoint at ``signal``, and does not end."""
    ids = write_line(provider, location, **line)
    provider.checkpoint("{}", signal)
    sys.stdin.readline()
    return ids


def write_and_not_hold(provider: BaseProvider, location: str, *, signal: str) -> list[str]:
    """Write the first checkpoint of a run that gets no further. It reports at ``signal``, and does not end."""
    with inflight.marking_ahead():
        ids = write_line(provider, location, count=1)
        provider.checkpoint("{}", signal)
        sys.stdin.readline()
    return ids


def ids_of(infos: list[CheckpointInfo]) -> list[str]:
    """Return the ids of these checkpoints."""
    return [info.id for info in infos]


_CHILD = """
import json, sys
{make}
asked = json.loads(sys.argv[1])
from runner.testing import writers
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(getattr(writers, asked.pop("function"))(provider, **asked)))
"""


class Elsewhere:
    """Another process with the provider, which waits to be released."""

    def __init__(self, make: str, function: str, **asked: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD.format(make=make), json.dumps({"function": function, **asked})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the other process has no provider: see `elsewhere`"

    def begin(self) -> None:
        """Release it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Wait for its function, and return the result."""
        said, _ = self._process.communicate()
        assert self._process.returncode == 0, said
        return json.loads(said)

    def kill(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def together(*processes: Elsewhere) -> Iterator[None]:
    """Release all at once; none of them outlives the block."""
    try:
        for process in processes:
            process.begin()
        yield
    finally:
        for process in processes:
            process.kill()


def read(provider: BaseProvider, location: str) -> list[Any]:
    """Read the store: the newest checkpoint's location, and the data of every id."""
    found = [[info.id, provider.from_checkpoint(info.location)] for info in provider.checkpoints(location)]
    return [provider.latest(location).location, found]
