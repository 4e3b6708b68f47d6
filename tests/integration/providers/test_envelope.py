"""The messages that the scripts push are Celery's own: a stock worker that knows nothing of the runner takes them."""

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from runner.core.jobs import Job
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis.envelope import JOB, job_arguments
from runner.tasks.app import kombu_url
from runner.tasks.broker import CeleryBroker
from runner.testing import RedisServer, eventually

from .driver import QUEUE, Driver, plan_of
from .plans import NAMES

STOCK = """
import json, sys
from celery import Celery
from redis import Redis

url, broker, queue = sys.argv[1:]
redis = Redis.from_url(url)
app = Celery(broker=broker, set_as_current=False)
app.conf.update(worker_prefetch_multiplier=1, task_default_queue=queue, broker_connection_retry_on_startup=True)

@app.task(name="runner.job", bind=True, ignore_result=True)
def job(self, *args, **kwargs):
    request = self.request
    redis.rpush("seen", json.dumps({
        "args": args, "kwargs": kwargs, "id": request.id, "shadow": request.shadow, "retries": request.retries,
        "delivery_info": request.delivery_info, "kwargsrepr": request.kwargsrepr, "modules": sorted(sys.modules),
    }))

app.worker_main(["worker", "--pool=solo", "--loglevel=warning", "--without-gossip", "--without-mingle"])
"""


class StockWorker:
    """A plain Celery worker in a process of its own."""

    def __init__(self, server: RedisServer, redis: Redis, queue: str) -> None:
        self._redis = redis
        self._log = server.folder / "stock-worker.log"
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", STOCK, server.url, kombu_url(server.url), queue],
                stdout=out, stderr=out, cwd=server.folder,
            )  # fmt: skip

    def saw(self, count: int) -> list[dict[str, Any]]:
        """What its task was called with, once it was called so often."""

        def look() -> bool:
            assert self._process.poll() is None, self.log()
            return self._redis.llen("seen") >= count

        eventually(look, why=f"{count} messages are consumed")
        return [json.loads(text) for text in self._redis.lrange("seen", 0, -1)]

    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def stock_worker(server: RedisServer, redis: Redis) -> Iterator[StockWorker]:
    one = StockWorker(server, redis, QUEUE)
    yield one
    one.end()


@pytest.fixture
def app(server: RedisServer) -> Iterator[Celery]:
    """A plain app that sends to the same queue."""
    one = Celery(broker=kombu_url(server.url), set_as_current=False)
    yield one
    one.close()


def messages(redis: Redis, queue: str = QUEUE) -> list[dict[str, Any]]:
    return [json.loads(text) for text in redis.lrange(queue, 0, -1)]


def test_a_stock_worker_takes_every_message_with_its_names_unharmed(driver: Driver, stock_worker: StockWorker) -> None:
    # Given a run whose crew and tasks have names that are hard on JSON, on formats and on patterns
    first, *others = NAMES
    plan = Plan("crew 'ü' \"%s\" \\ @RUN@", (PlannedTask(first), *(PlannedTask(name, (first,)) for name in others)))

    # When its messages are pushed: one by its creation, the others by a commit, one more by a release
    run = driver.submit(plan)
    (seen,) = stock_worker.saw(1)
    claim = driver.claim(Job(run, "main", first, 1))
    driver.commit(claim)
    stock_worker.saw(1 + len(others))
    driver.task(driver.claim(Job(run, "main", others[0], 1))).release(replayed=0)
    called = stock_worker.saw(2 + len(others))

    # Then each called the task with the ids, and nothing else
    assert seen["kwargs"] == job_arguments(run, "main", first, 1)
    expected = [(first, 1), *((name, 1) for name in others), (others[0], 2)]
    assert [one["kwargs"] for one in called] == [job_arguments(run, "main", *each) for each in expected]
    assert all(one["args"] == [] and one["retries"] == 0 for one in called)
    assert [one["shadow"] for one in called] == [f"{plan.crew}.{name}" for name, _ in expected]
    assert len({one["id"] for one in called}) == len(called)
    assert {one["delivery_info"]["routing_key"] for one in called} == {QUEUE}
    assert not [name for name in seen["modules"] if name.split(".")[0] == "runner"], "it knows nothing of the runner"
    # And nothing was left unacknowledged, or said to be wrong
    eventually(lambda: not driver.redis.exists("unacked"), why="all are acknowledged")
    assert "rror" not in stock_worker.log(), stock_worker.log()


def test_a_message_is_laid_out_as_this_kombu_lays_it_out(driver: Driver, app: Celery) -> None:
    run = driver.submit(plan_of("a"))
    (ours,) = messages(driver.redis)
    arguments = job_arguments(run, "main", "a", 1)
    job_id = ours["headers"]["id"]
    driver.redis.delete(QUEUE)
    app.send_task(
        JOB,
        kwargs=arguments,
        queue=QUEUE,
        task_id=job_id,
        shadow="a crew.a",
        argsrepr="()",
        kwargsrepr=repr(arguments),
        ignore_result=True,
    )
    (theirs,) = messages(driver.redis)

    # The body is theirs, but for the base64 around it, which a worker needs only where the message says so, and for
    # what says that nothing comes after
    assert theirs["properties"]["body_encoding"] == "base64"
    assert "body_encoding" not in ours["properties"]
    *mine, nothing = json.loads(ours.pop("body"))
    *of_theirs, embedded = json.loads(b64decode(theirs.pop("body")))
    assert (mine, nothing, set(embedded.values())) == (of_theirs, {}, {None})
    # What is unique to each copy differs
    assert ours["properties"].pop("delivery_tag") != theirs["properties"].pop("delivery_tag")
    # Nothing else is said otherwise, and what is left out says nothing, or what only a sender, or a result, needs
    headers, properties = ours.pop("headers"), ours.pop("properties")
    left_out = {name: value for name, value in theirs["headers"].items() if name not in headers}
    assert headers.items() <= theirs.pop("headers").items()
    assert properties.items() <= theirs.pop("properties").items()
    assert ours == theirs
    for name in ("lang", "origin", "root_id"):
        del left_out[name]
    assert not any(any(value) if isinstance(value, list) else value for value in left_out.values()), left_out


@pytest.mark.parametrize("branch", ["main", "of_12_bytes_", "of_13_bytes__"])
def test_our_own_sending_through_a_broker_says_the_same(driver: Driver, app: Celery, fork: Any, branch: str) -> None:
    """Where the broker is not the state's Redis, the job goes by Celery: the worker must see the same in both."""
    run = driver.submit(plan_of("a"))
    if branch != "main":
        driver.redis.delete(QUEUE)
        fork(run, branch=branch)
    (ours,) = messages(driver.redis)
    driver.redis.delete(QUEUE)
    CeleryBroker(app).send(Job(run, branch, "a", 1), QUEUE)
    (sent,) = messages(driver.redis)
    assert json.loads(ours["body"])[1] == json.loads(b64decode(sent["body"]))[1]
    for name in ("task", "id", "argsrepr", "kwargsrepr", "ignore_result"):
        assert ours["headers"][name] == sent["headers"][name], name


def test_a_message_carries_ids_only(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b: a"), inputs='{"key": "a secret input"}')
    claim = driver.take("a")["a"]
    task = driver.task(claim)
    task.record_step("ask#1", '"a secret answer"', replayed=0)
    task.commit('{"raw":"a secret output"}', driver.runs.plan(run).dependents["a"], replayed=0)
    (message,) = driver.redis.lrange(QUEUE, 0, -1)
    assert "secret" not in message
    assert json.loads(json.loads(message)["body"])[1] == job_arguments(run, "main", "b", 1)
    assert len(message) < 700


def test_each_copy_has_a_delivery_tag_of_its_own(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    tags = [messages(driver.redis)[0]["properties"]["delivery_tag"]]
    for _ in range(3):
        driver.redis.delete(QUEUE)
        clock.go_on(2000)
        assert driver.workers.redeliver(1000) == 1
        tags.append(messages(driver.redis)[0]["properties"]["delivery_tag"])
    assert len(set(tags)) == 4
    assert all(tag.startswith(f"{run}.") for tag in tags)


@pytest.mark.parametrize("queue", ["50% off", "@RUN@ and @NONE@", 'a "quoted" one', "Größe\\n"])
def test_a_queue_may_have_any_name(driver: Driver, queue: str) -> None:
    driver.submit(plan_of("a"), queue=queue)
    (message,) = messages(driver.redis, queue)
    assert message["properties"]["delivery_info"]["routing_key"] == queue
