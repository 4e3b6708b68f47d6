"""What a task's error says is stored, logged and shown without the secrets in it."""

import json
from typing import Any

import pytest

from runner.client import Client
from runner.core import settings
from runner.testing import Fleet, RedisServer

CREW = """
    import os
    from runner import Crew, Task

    def refuse(ctx):
        ctx.progress(1, text=f"asking with {os.environ['BILLING_TOKEN']}")
        key = "sk-" + "live" + "Ab3dEf6h" * 3
        named = type("About_" + os.environ["BILLING_TOKEN"], (RuntimeError,), {})
        raise named(f"refused: {key} at https://me:hunter2@api.example, {os.environ['BILLING_TOKEN']}")

    crew = Crew(tasks=[Task(name="ask", run=refuse, max_retries=1)])
"""


def test_no_secret_of_an_error_is_stored_logged_or_shown(
    own_server: RedisServer, own_fleet: Fleet, write_crew: Any
) -> None:
    own_fleet.start("--concurrency", "1", BILLING_TOKEN="correct-horse-battery")
    with Client(own_server.url) as client:
        handle = client.submit(write_crew(CREW))
        result = handle.wait(60)
    assert result.status == "failed"
    assert "refused: *** at https://me:***@api.example, ***" in (result.error or "")
    shown = own_fleet.runner("show", handle.id, "--json").stdout + own_fleet.runner("events", handle.id).stdout
    assert "refused: ***" in shown
    own_server.process.terminate()
    own_server.process.wait()  # all is in the file then
    stored = b"".join(file.read_bytes() for file in own_server.folder.rglob("*") if file.is_file())
    assert b"refused: ***" in stored
    for secret in ("Ab3dEf6hAb3dEf6h", "hunter2", "correct-horse-battery"):
        assert secret not in shown
        assert secret.encode() not in stored
        assert secret not in own_fleet.log()


STARTS = """
    import json, os, subprocess, sys
    from runner import Crew, Task

    def start(ctx):
        shown = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.splitlines()
        own = [line.partition("=")[0] for line in [*shown, *os.environ]]
        return {"held": sorted({name for name in own if name.startswith("RUNNER_")}), "said": "SAID=so" in shown}

    crew = Crew(tasks=[Task(name="start", run=start, **OPTIONS)])
"""


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_what_a_task_starts_has_no_password_of_the_store_nor_a_key_of_the_worker(
    fleet: Fleet, client: Client, write_crew: Any, pool: str
) -> None:
    fleet.start("--concurrency", "1", RUNNER_BUNDLE_KEY="a-key-of-this-test-0123", SAID="so")
    options = '{"pool": "thread"}' if pool == "thread" else "{}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNNER_BUNDLE_KEY", "a-key-of-this-test-0123")
        handle = client.submit(write_crew(STARTS.replace("OPTIONS", options)))
    result = handle.wait(60)
    assert result.status == "completed", result.error
    found = json.loads(result.outputs["start"])
    assert found["said"]
    assert not set(found["held"]) & set(settings.WITHHELD)
