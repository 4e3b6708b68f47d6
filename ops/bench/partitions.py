"""What a second Redis server brings: operations of the store from several processes, against one server and two.

The machine's cores are shared by servers and clients, so no rate of the clock would tell: what counts is the processor
time of each server's own process. With a core for each, the busiest server is the limit.

The same operation takes a server more processor time where more processes share the cores and their caches. Two servers
have twice the clients, so one is measured beside another one that does as much: ten processes are at work either way,
and what differs is whether the two are one store.
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
from runner.providers.redis.connection import connect
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.partitions import place_of
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import ClaimedTask
from runner.providers.redis.workers import Workers

CLIENTS = 4  #: for each server: a fleet has as many workers for each
PLAN = Plan("short", (PlannedTask("a"), PlannedTask("b", ("a",), ("a",))))


def measure(rounds: int, runs: int) -> Iterator[Row]:
    """Runs of two tasks, so many for each server: created; each task claimed and committed."""
    one, two, shares = [], [], []
    for number in range(rounds):
        for together in (False, True) if number % 2 else (True, False):
            spent = _busy(runs, together=together)
            if together:
                two.append(2 * runs / max(spent))
                shares.append(max(spent) / sum(spent))
            else:
                one.append(runs / statistics.mean(spent))
    ratio = median_ratio(two, one)
    yield Row(
        "servers", "two servers, each with a core: runs of two tasks that the busier one's processor time allows",
        ratio, f"{statistics.median(two):,.0f} runs/s; {max(shares):.1%} of the time on the busier one",
        ">= 1.8 x", ratio >= 1.8, f"{statistics.median(one):,.0f} runs/s: one server", f"{ratio:.2f}",
        samples={"one": one, "two": two},
    )  # fmt: skip


def _busy(runs: int, *, together: bool) -> list[float]:
    """The seconds of processor time that each of two servers had for so many runs each, as one store or as two."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving()), stack.enter_context(serving())]
        urls = [server.url for server in servers]
        stores = [urls, urls] if together else [[url] for url in urls]
        clients = [store for store in stores for _ in range(CLIENTS)]
        stack.enter_context(pool := get_context("spawn").Pool(len(clients)))
        pool.starmap(_do, [(store, 0, CLIENTS) for store in clients], chunksize=1)  # processes and scripts are there
        before = [_time(server) for server in servers]
        each = runs // CLIENTS
        pool.starmap(_do, [(store, (n + 1) * each, each) for n, store in enumerate(clients)], chunksize=1)
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
