"""A tool that dies between its effect and its record asks again with the same header, if its service is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.client import Client

from ...integration.llm.wire_server import WireServer

CREW = """
import os
from pathlib import Path
import requests
from runner import Crew, Task, durable

DIED = Path({died!r})


@durable
def order(what):
    said = requests.post({url!r} + "/orders", json={{"what": what}}, timeout=20).status_code
    if not DIED.exists():
        DIED.touch()
        os.kill(os.getpid(), 9)
    return said


crew = Crew(tasks=[Task(name="buy", run=lambda ctx: f"{{order('owl')}} {{order('owl')}}")])
"""


def test_the_header_is_the_same_after_a_kill(
    fleet: Any, client: Client, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    with WireServer() as shop:
        named = shop.url.removeprefix("http://") + "/orders"
        fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_IDEMPOTENT_ENDPOINTS=named)
        result = client.submit(write_crew(CREW.format(url=shop.url, died=str(tmp_path / "died")))).wait(120)
        assert result.outputs == {"buy": "200 200"}, result.error
        keys = [dict(headers).get("Idempotency-Key") for _, _, headers, _ in shop.log]
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2], "the second order is another use"
    assert keys[0]
