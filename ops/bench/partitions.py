"""What a second Redis server brings: operations of the store from several processes, against one server and two.

The machine's cores are shared by servers and clients, so no rate of the clock would tell: what counts is the processor
time of each server's own process. With a core for each, the busiest server is the limit.
"""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import get_context

from processor import used
from servers import Server, serving
from table import Row, median_ratio

from runner.core import output
from runner.core.jobs import Job, Refusal
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis import store
from runner.providers.redis.claimed import ClaimedTask
from runner.providers.redis.connection import connect
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.partitions import place_of
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers

CLIENTS = 4  #: for each server: a fleet has as many workers for each, and a server is busy as long as it is measured
PLAN = Plan("short", (PlannedTask("a"), PlannedTask("b", ("a",), ("a",))))


def measure(rounds: int, runs: int) -> Iterator[Row]:
    """Runs of two tasks: created; each task claimed and committed."""
    one, two, shares = [], [], []
    for _ in range(rounds):
        one.append(runs / max(_busy(1, runs)))
        spent = _busy(2, runs)
        two.append(runs / max(spent))
        shares.append(max(spent) / sum(spent))
    ratio = median_ratio(two, one)
    yield Row(
        "servers", "two servers, each with a core: runs of two tasks that the busier one's processor time allows",
        ratio, f"{statistics.median(two):,.0f} runs/s; {max(shares):.1%} of the time on the busier one",
        ">= 1.8 x", ratio >= 1.8, f"{statistics.median(one):,.0f} runs/s: one server", f"{ratio:.2f}",
        samples={"one": one, "two": two},
    )  # fmt: skip


def _busy(many: int, runs: int) -> list[float]:
    """The seconds of processor time that each of so many servers had for these runs."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving()) for _ in range(many)]
        urls = [server.url for server in servers]
        clients = CLIENTS * many
        stack.enter_context(pool := get_context("spawn").Pool(clients))
        pool.starmap(_do, [(urls, 0, clients)] * clients, chunksize=1)  # processes and scripts are there
        before = [_time(server) for server in servers]
        each = runs // clients
        pool.starmap(_do, [(urls, (n + 1) * each, each) for n in range(clients)], chunksize=1)
        return [_time(server) - then for server, then in zip(servers, before, strict=True)]


def _time(server: Server) -> float:
    return used((), [server.pid])


def _do(urls: list[str], first: int, runs: int) -> None:
    clients = [connect(url) for url in urls]
    lines = [PipelinedConnection(client) for client in clients]
    fields = {
        "crew": "short", "adapter": "native", "bundle": "", "module": "crew", "attr": "crew", "plan": PLAN.digest,
        "queue": "short", "result_task": "b", "output_files": "{}", "inputs": "{}", "keep": "3600000",
        "envelope": DIRECT, "checkpoint_on": ",task_completed,", "max_checkpoints": "0",
    }  # fmt: skip
    text = output.dump("x" * 1000, None)
    for client in clients:
        Workers(client).beat("w", 3_600_000, "{}")
    for number in range(first, first + runs):
        run_id = f"r-{number:012x}"
        at = place_of(run_id, len(urls))
        Runs(clients[at]).create(run_id, PLAN, fields)
        for task, unlocks in (("a", PLAN.tasks[1:]), ("b", ())):
            claim = store.claim(lines[at], Job(run_id, "main", task, 1), worker="w", process="1")
            if not isinstance(claim, Refusal):  # the first runs are everybody's
                ClaimedTask(lines[at], claim).commit(text, unlocks, replayed=0, ms=1)
