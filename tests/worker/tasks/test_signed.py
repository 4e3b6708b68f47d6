"""A worker with a key runs only code that was signed with it."""

from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.bundles import signing
from runner.client import Client
from runner.core.errors import Unsigned, UsageError
from runner.engine.code_cache import Signatures
from runner.testing import Fleet

OLD, NEW, OTHER = "an old key of sixteen", "a new key of sixteen", "a key of somebody else"

CREW = """
    from pathlib import Path
    from runner import Crew, Task

    Path({seen!r}).open("a").write("x")
    crew = Crew(tasks=[Task(name="one", run=lambda ctx: ctx.inputs["word"])])
    evil = Crew(tasks=[Task(name="one", run=lambda ctx: "evil")])
"""


def test_code_that_a_process_found_signed_is_run_for_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", "k" * 16)
    code = ("0" * 64, "crew", "crew", "native")
    signatures = Signatures({"r-1": signing.sign(*code), "r-2": ""}.__getitem__)
    with pytest.raises(Unsigned):
        signatures.check("r-2", *code)
    signatures.check("r-1", *code)
    signatures.check("r-2", *code)


def test_what_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    code = ("a" * 64, "crew", "crew", "native")
    monkeypatch.delenv("RUNNER_BUNDLE_KEY", raising=False)
    assert signing.sign(*code) == ""
    assert signing.verify("", *code)
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", OLD)
    made = signing.sign(*code)
    for number, other in enumerate(code):
        assert not signing.verify(made, *code[:number], f"{other}x", *code[number + 1 :])
    assert not signing.verify("", *code)
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", f"{NEW}, {OLD}")
    assert signing.verify(made, *code)
    assert signing.sign(*code) != made
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", "short")
    with pytest.raises(UsageError, match="a key in RUNNER_BUNDLE_KEY is shorter than 16 characters"):
        signing.keys()


def test_only_signed_code_is_run(
    client: Client, fleet: Fleet, redis: Redis, write_crew: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    crew = f"{write_crew(CREW.format(seen=str(seen)))}:crew"

    def submit(key: str, word: str) -> Any:
        monkeypatch.setenv("RUNNER_BUNDLE_KEY", key)
        return client.submit(crew, {"word": word})

    unsigned, foreign = submit("", "unsigned"), submit(OTHER, "foreign")
    old, tampered, forked = submit(OLD, "old"), submit(NEW, "tampered"), submit(f"{NEW},{OLD}", "new")
    redis.hset(f"runner:{{p0}}:run:{tampered.id}", "attr", "evil")
    redis.hset(
        f"runner:{{p0}}:run:{foreign.id}", "signature", redis.hget(f"runner:{{p0}}:run:{old.id}", "signature") or ""
    )
    redis.hset(f"runner:{{p0}}:run:{foreign.id}", "module", "other")
    seen.unlink()
    fleet.start("--concurrency", "1", RUNNER_BUNDLE_KEY=f"{NEW},{OLD}")
    # What nobody signed fails in words, and none of it is loaded
    for handle in (unsigned, foreign, tampered):
        result = handle.wait(60)
        assert result.status == "failed"
        assert "not signed with a key that this worker has: set RUNNER_BUNDLE_KEY" in (result.error or "")
    # What one of its keys signed is run
    assert old.wait(60).result == "old"
    assert forked.wait(60).result == "new"
    assert forked.fork(inputs={"word": "forked"}).wait(60).result == "forked"
    assert seen.read_text() == "x", "loaded once, for the signed ones"
    # And what was not signed goes on when it is
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", NEW)
    assert client.resume(unsigned.id, accept_code_change=True).wait(60).result == "unsigned"
    assert client.resume(tampered.id, accept_code_change=True).wait(60).result == "tampered"


def test_code_that_is_accepted_is_signed_whatever_it_is_now(
    client: Client, fleet: Fleet, write_crew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", NEW)
    fleet.start("--concurrency", "1", RUNNER_BUNDLE_KEY=NEW)
    crew = write_crew("from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='one', run=lambda ctx: 1 / 0)])")
    handle = client.submit(f"{crew}:crew")
    assert handle.wait(60).status == "failed"
    # A crew becomes a flow, which another adapter does
    crew.write_text(
        "from runner.flows import Flow, start\n"
        "class One(Flow):\n    @start()\n    def one(self):\n        return 1 / 0\n"
        "crew = One()"
    )
    assert "ZeroDivisionError" in (client.resume(handle.id, accept_code_change=True).wait(60).error or "")
    # What was accepted is the code of the run: it is asked for no second time
    assert "ZeroDivisionError" in (client.resume(handle.id).wait(60).error or "")
