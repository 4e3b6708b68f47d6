"""Code that was damaged in the store is never run, and submitting it again puts it right."""

from typing import Any

from redis import Redis

from runner.client import Client
from runner.providers.redis.runs import Runs
from runner.testing import Fleet

CREW = "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=lambda ctx: 'done')])"


def test_submitting_again_replaces_damaged_code(client: Client, fleet: Fleet, redis: Redis, write_crew: Any) -> None:
    crew = write_crew(CREW)
    first = client.submit(crew)
    (key,) = redis.scan_iter("runner:{p0}:bundle:*")
    redis.hset(key, "data", b"nonsense")
    fleet.start("--concurrency", "1")
    result = first.wait(60)
    assert result.status == "failed"
    assert "is damaged" in (result.error or "")
    assert "submit the crew again" in (result.error or "")
    assert client.submit(crew).wait(60).result == "done"
    assert client.resume(first.id).wait(60).result == "done"


def test_only_what_is_damaged_is_dropped_and_who_uses_a_bundle_stays_counted(redis: Redis) -> None:
    runs = Runs(redis)
    runs.put_bundle("x", b"good")
    assert not runs.drop_bundle("x", b"bad")
    assert runs.bundle("x") == b"good"
    (key,) = redis.scan_iter("runner:{p0}:bundle:*")
    redis.hincrby(key, "active", 1)
    redis.persist(key)
    assert runs.drop_bundle("x", b"good")
    assert not runs.put_bundle("x", None)
    assert runs.put_bundle("x", b"good")
    assert redis.hget(key, "active") == "1"
    assert redis.ttl(key) == -1, "a run needs it"
    redis.delete(key)
