"""Files that ask models while they are imported, on workers that die."""

import os
import signal
from collections import Counter
from typing import Any

import pytest

from runner.client import Client, prepare
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


PAST = """
    import json, multiprocessing, threading, urllib.request
    from concurrent.futures import ProcessPoolExecutor
    import httpx
    from runner import Crew, Task

    FORK = multiprocessing.get_context("fork")

    def ask(text):
        body = {{"model": "m", "messages": [{{"role": "user", "content": text}}]}}
        return httpx.post("{url}/chat/completions", json=body, timeout=60).json()["choices"][0]["message"]["content"]

    def past(text):
        body = json.dumps({{"model": "m", "messages": [{{"role": "user", "content": text}}]}}).encode()
        headers = {{"Content-Type": "application/json"}}
        urllib.request.urlopen(urllib.request.Request("{url}/chat/completions", body, headers)).read()

    def alone(kind, ask, text):
        started = kind(target=ask, args=(text,))
        started.start()
        started.join()

    alone(threading.Thread, ask, "thread")
    past("urllib")
    alone(threading.Thread, past, "urllib in a thread")
    alone(FORK.Process, ask, "fork")
    pool = FORK.Pool(1)

    def use(ctx):
        pool.map(ask, ["pool"])
        with ProcessPoolExecutor(1, mp_context=FORK) as own:
            list(own.map(ask, ["own pool"]))
        return "used"

    crew = Crew(tasks=[Task(name="one", run=use), Task(name="two", run=use)])
"""


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_calls_past_the_journal_at_import_and_of_forks_are_counted(
    pool: str, write_crew: Any, fleet: Any, client: Client
) -> None:
    # Given a file that asks past the journal while it is imported, and forks processes then that its tasks use
    fleet.start("--concurrency", "1", "--pool", pool)
    with ModelServer(lambda request: Answer(request.text)) as models:
        file = write_crew(PAST.format(url=models.url))
        prepared = prepare(str(file))
        submitted = Counter(request.text for request in models.log)
        # When a run of it is done
        handle = client.submit(prepared)
        result = handle.wait(60)
        asked = Counter(request.text for request in models.log) - submitted
    # Then who submits is told how many there were, and the run of each that it made: a thread's call is recorded
    assert (result.status, result.error) == ("completed", None)
    assert submitted == Counter(["thread", "urllib", "urllib in a thread", "fork"])
    assert (prepared.calls, prepared.calls_unrecorded) == (1, 3)
    assert asked == Counter(["urllib", "urllib in a thread", "fork", *["pool", "own pool"] * 2])
    assert handle.calls_unrecorded() == {f"{models.url.removeprefix('http://')}/chat/completions": 7}


def test_a_dry_run_asks_nothing_past_the_journal_either(write_crew: Any, fleet: Any) -> None:
    with ModelServer() as models:
        file = write_crew(PAST.format(url=models.url).replace('alone(threading.Thread, ask, "thread")', ""))
        told = fleet.runner("submit", str(file), "--dry-run")
        assert (told.returncode, models.requests) == (0, 0), told.stderr
        # And who submits it is told
        told = fleet.runner("submit", str(file), "--detach")
    assert "crew.py made 3 calls past the journal while it was imported here" in told.stderr, told.stderr
