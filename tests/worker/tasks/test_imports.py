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


RESUMED = """
    import httpx
    from runner import Crew, Task

    def ask(text):
        body = {{"model": "m", "messages": [{{"role": "user", "content": text}}]}}
        return httpx.post("{url}/chat/completions", json=body, timeout=60).json()["choices"][0]["message"]["content"]

    found = ask("import")

    def first(ctx):
        answer = ask(f"task with {{found}}")
        return f"{{answer}} {{1 / 0}}"

    crew = Crew(tasks=[Task(name="first", run=first)])
"""


@pytest.mark.parametrize("earlier", ["stored", "lost"])
def test_code_that_is_accepted_is_answered_from_what_the_earlier_code_was(
    earlier: str, write_crew: Any, fleet: Any, client: Client
) -> None:
    # Given a run that failed after a call of its task, whose request has the answer to one at import
    fleet.start("--concurrency", "1")
    numbers = iter(range(100))
    with ModelServer(lambda request: Answer(f"{request.text}: {next(numbers)}")) as models:
        file = write_crew(RESUMED.format(url=models.url))
        handle = client.submit(file)
        assert handle.wait(60).status == "failed"
        if earlier == "lost":
            sha = client.store.runs.field(handle.id, "bundle")
            assert client.store.runs.drop_bundle(sha, client.store.runs.bundle(sha))
        # When it is resumed with code that is mended, and asks one thing more while it is imported
        file.write_text(file.read_text().replace("1 / 0", "1 / 1").replace("def first", "ask('more')\n\ndef first"))
        result = client.resume(handle.id, accept_code_change=True).wait(60)
    # Then that is paid, and nothing else again, unless the answers are lost
    assert result.error is None
    asked = [request.text for request in models.log]
    if earlier == "stored":
        assert asked == ["import", "task with import: 0", "more"]
        assert result.outputs["first"] == "task with import: 0: 1 1.0"
    else:
        assert asked == ["import", "task with import: 0", "import", "more", "task with import: 2"]


@pytest.mark.parametrize("is_batch", [False, True])
def test_who_submits_with_an_id_again_pays_for_no_call_at_import(
    write_crew: Any, client: Client, is_batch: bool
) -> None:
    # Given a submission whose answer was lost
    def submit(id: str) -> list[str]:
        if not is_batch:
            return [client.submit(file, id=id).id]
        begun = client.submit_many(file, [{}, {}], id=id)._begin(9)
        return [run_id for _, run_id, _ in begun or ()]

    with ModelServer(lambda request: Answer(request.text)) as models:
        file = write_crew(CREW.format(url=models.url))
        runs = submit("x")
        assert models.requests == 2
        # When it is submitted again with the same id, then it is the same, and nothing is asked
        assert submit("x") == runs
        assert models.requests == 2
        # But another submission pays for its own
        assert submit("y") != runs
        assert models.requests == 4
