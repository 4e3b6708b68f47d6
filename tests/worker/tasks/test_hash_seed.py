"""A set of strings has the same order in each process that runs a crew's code: another one is another request."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.hash_seed import NAME
from runner.testing import ModelServer

from ...support.soak import in_soak

CREW = """
import os
import requests
from runner import Crew, Task

CITIES = {"Accra", "Bogota", "Cairo", "Dhaka", "Essen", "Fez", "Goa", "Hanoi"}


def ask(text):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    answer = requests.post("%s/chat/completions", json=body, timeout=60).json()
    return answer["choices"][0]["message"]["content"]


COMPARED = ask("Compare " + ", ".join(CITIES))


def each(ctx):
    return " ".join(ask(f"{number}. {city}") for number, city in enumerate(CITIES))


crew = Crew(tasks=[*(Task(name=city, run=lambda ctx: ctx.task.name) for city in CITIES), Task(name="each", run=each)])
"""


@pytest.mark.usefixtures("started_afresh")
@pytest.mark.parametrize("submits", ["command", *in_soak("client")])
def test_an_agent_that_iterates_over_a_set_is_killed_and_asks_nothing_again(
    submits: str, fleet: Any, client: Client, write_crew: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who submits it nor one of the two workers is told a seed."""
    fleet.settings[NAME] = ""
    monkeypatch.setenv(NAME, "")

    def answer(request: Any) -> str:
        if request.number == 6:
            first.kill_group()
            fleet.start("--concurrency", "1", wait=False)
        return "ok"

    first = fleet.start("--concurrency", "1")
    with ModelServer(answer) as models:
        file = write_crew(CREW % models.url)
        if submits == "command":
            submitted = fleet.runner("submit", str(file), "--detach")
            result = client.run(submitted.stdout.split()[-1]).wait(60)
        else:
            result = client.submit(file).wait(60)
        asked = Counter(request.text for request in models.log)
    assert (result.status, result.ledger["paid"], result.ledger["in_doubt"]) == ("completed", 8, 1), result
    assert sorted(asked.values()) == [1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert next(iter(asked)) == "Compare " + ", ".join(list(result.outputs)[:-1])
