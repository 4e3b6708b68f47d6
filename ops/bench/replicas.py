"""What a commit costs that waits for a replica: `RUNNER_WAIT_REPLICAS=1`, both servers on this machine."""

import itertools
import socket
import statistics
from collections.abc import Iterator

from servers import serving
from storage import LongRun
from table import Row
from waiting import until

from runner.providers.redis.connection import connect
from runner.providers.redis.pipelined import PipelinedConnection, Replicas
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers


def measure(tasks: int) -> Iterator[Row]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with serving("--port", port) as server, serving("--replicaof", f"127.0.0.1 {port}"):
        client = connect(server.url)
        until(lambda: client.info("replication").get("slave0", {}).get("state") == "online", "the replica is there")
        Workers(client).beat("w", 3_600_000, "{}")
        runs = Runs(client)
        acts = {
            "alone": LongRun(PipelinedConnection(client), runs, "r-alone", tasks).one,
            "waiting": LongRun(PipelinedConnection(client, Replicas(1, 1.0)), runs, "r-waiting", tasks).one,
        }
        times: dict[str, list[float]] = {name: [] for name in acts}
        turns = itertools.chain(*itertools.permutations(acts.items()))  # who comes first in turn
        for name, act in itertools.islice(itertools.cycle(list(turns)), 2 * tasks):
            times[name].append(act())
    alone, waiting = (statistics.median(times[name]) * 1e6 for name in ("alone", "waiting"))
    yield Row(
        "replicas", f"commit that waits for a replica (medians of {tasks}, interleaved)", waiting,
        f"{waiting:.0f} us", peer=f"{alone:.0f} us: the same commit, not waiting", ratio=f"{waiting / alone:.2f}",
        samples=times,
    )  # fmt: skip
