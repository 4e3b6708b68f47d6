"""Files that ask models while they are imported, on workers that die."""

import os
import signal
from collections import Counter
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, ModelServer

CREW = """
    import os
    import httpx
    from runner import Crew, Task

    def ask(text):
        body = {{"model": "m", "messages": [{{"role": "user", "content": text}}]}}
        answer = httpx.post("{url}/chat/completions", json=body, timeout=60).json()
        return answer["choices"][0]["message"]["content"]

    found = ask("everywhere"), ask("on a worker" if os.environ.get("ON_A_WORKER") else "where it is read")

    def first(ctx):
        return f"{{found}} {{ask('task')}}"

    crew = Crew(tasks=[Task(name="first", run=first)])
"""


@pytest.mark.parametrize("at", ["on a worker", "task"])
def test_a_kill_during_the_import_and_after_it_pays_for_what_was_in_flight(
    at: str, write_crew: Any, fleet: Any, client: Client
) -> None:
    # Given a worker of which each process dies that asks the model this for the first time
    worker = fleet.start("--concurrency", "2", "--pool", "prefork", ON_A_WORKER="1")
    asked: Counter[str] = Counter()

    def answer(request: Any) -> Answer:
        asked[request.text] += 1
        if request.text == at and asked[at] == 1:
            for child in worker.children():
                os.kill(child, signal.SIGKILL)
        return Answer(f"{request.text} {asked.total()}")

    with ModelServer(answer) as models:
        # When a run of the file is done
        result = client.submit(write_crew(CREW.format(url=models.url))).wait(120)
    # Then what was answered where it was read, or on the worker, was paid once: that in flight was made once more
    assert result.error is None
    assert asked == Counter(["everywhere", "where it is read", "on a worker", "task", at])
    assert result.outputs["first"].startswith("('everywhere 1', 'on a worker ")
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (2, 1)
