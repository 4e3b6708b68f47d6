"""Calls of models in a task: what goes wrong, what stops them, whose they are, and what is recorded of them."""

import contextlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import httpx2
import pytest

from runner import durable
from runner.core.errors import Interrupted
from runner.core.ledger import STEP, AccountKey, Counters, Usage
from runner.events import event_bus
from runner.events.call_events import CallDivergedEvent, LLMCallCompletedEvent, LLMCallFailedEvent, LLMCallStartedEvent
from runner.journal.call_slots import is_call
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.llm.recording import CallContext, CallResult, caller, calling, journaled
from runner.testing import Answer

from ...support.later import Later
from . import test_vendors as vendors
from .conftest import GPT, Account, journal_now, user

openai = Later("openai")

# -- what goes wrong


def test_what_is_refused_and_tried_again_is_one_call(server, account, attempt, ask):
    statuses = iter([429, 503, 200])
    server.use(lambda request: Answer("at last", status=next(statuses, 200), retry_after=0))
    assert attempt(lambda: ask("it", max_retries=3)) == "at last"
    assert (server.requests, account.paid.total(), account.in_doubt) == (3, 1, 0)
    assert attempt(lambda: ask("it", max_retries=3)) == "at last"
    assert server.requests == 3, "the record is found, though two were refused before it"


@pytest.mark.parametrize(
    ("answer", "stream"),
    [
        *((Answer("half", cut=0.5), False), (Answer("half of it", cut=0.5), True)),
        *((Answer("no JSON", malformed=True), False), (Answer("too late", delay=5), False)),
        *((Answer(body='{"choices": []}'), False), (Answer(body='{"detail": "busy"}'), False)),
    ],
    ids=["cut", "cut in the stream", "no JSON", "timeout", "no choices", "something else"],
)  # fmt: skip
def test_what_breaks_off_is_in_doubt_and_made_again(answer, stream, server, account, attempt, ask):
    server.use(answer)

    def one() -> Any:
        if not stream:
            return ask("it", timeout=1 if answer.delay else 20)
        with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            return [*client.chat.completions.create(model="gpt", messages=user("it"), stream=True)]

    with contextlib.suppress(openai.OpenAIError, httpx2.HTTPError, ValueError, LookupError, TypeError):
        attempt(one)
    assert (account.paid.total(), account.in_doubt, server.paid) == (0, 1, 1)
    server.use("whole")
    assert attempt(one)
    assert (account.paid.total(), account.in_doubt, server.paid) == (1, 0, 2)


def test_a_stream_that_nobody_reads_to_its_end_is_in_doubt(server, account, attempt):
    def one() -> None:
        with openai.OpenAI(base_url=server.url, api_key="k") as client:
            chunks = client.chat.completions.create(model="gpt", messages=user("it"), stream=True)
            next(iter(chunks))
            chunks.close()

    attempt(one)
    assert (account.recorded, account.in_doubt) == ({}, 1)


def test_what_is_never_sent_is_not_in_doubt(account, attempt):
    def one() -> None:
        with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0) as client:
            client.chat.completions.create(model="gpt", messages=user("it"))

    with pytest.raises(openai.APIConnectionError):
        attempt(one)
    assert (account.recorded, account.in_doubt) == ({}, 0)


# -- stops


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_deferrable_stop_waits_for_the_record(stream, server, account, attempt):
    cancel_scope = CancelScope()

    def asked(request: Any) -> str:
        assert cancel_scope.in_call
        cancel_scope.ask(Interrupted("the worker is draining"))
        assert not cancel_scope.interruptible(force=False)
        return "answered all the same"

    server.use(asked)
    with pytest.raises(Interrupted):
        attempt(lambda: vendors.openai_sync(server, stream), cancel_scope=cancel_scope)
    assert (server.paid, account.paid.total(), account.in_doubt) == (1, 1, 0)
    server.use("others")
    attempt(lambda: vendors.openai_sync(server, stream), unattributed=True)
    assert (server.paid, account.replayed.total()) == (5, 1)


def test_a_forced_stop_leaves_it_in_doubt(server, account, attempt, ask):
    class Forced(BaseException):
        pass

    def task() -> None:
        journal_hook = {"sent": False}

        def trace(event: str, info: Any) -> None:
            if event.endswith("receive_response_headers.started"):
                journal_hook["sent"] = True
                raise Forced

        with httpx2.Client() as client:
            client.post(
                f"{server.url}/chat/completions", json={"model": "gpt", "messages": []}, extensions={"trace": trace}
            )

    with pytest.raises(Forced):
        attempt(task)
    assert (account.recorded, account.in_doubt) == ({}, 1)


# -- steps around calls


def test_a_step_is_accounted_by_the_calls_inside_of_it(server, account, attempt, ask):
    def task(fail: bool) -> Any:
        journal = journal_now()

        def think() -> str:
            said = ask("one") + ask("two")
            if fail:
                raise KeyError("half-way")
            return said

        return journal.step("think", think, (), {}), journal.step("count", lambda: 1, (), {})

    with pytest.raises(KeyError):
        attempt(lambda: task(True))
    assert (account.paid, account.in_doubt, server.paid) == (Counters({GPT: 2}), 0, 2)
    first = attempt(lambda: task(False))
    assert (account.paid, account.replayed, server.paid) == (Counters({GPT: 2, STEP: 1}), Counters({GPT: 2}), 2)
    assert attempt(lambda: task(False)) == first
    assert account.replayed == Counters({GPT: 4, STEP: 1}), "a step that is replayed counts as its calls"


def test_a_tool_counts_beside_the_calls_it_makes(account, attempt, ask):
    attempt(lambda: journal_now().step("search", lambda: ask("which?"), (), {}, kind="tool"))
    assert account.paid == Counters({AccountKey("tool"): 1, GPT: 1})


def test_a_killed_step_does_not_get_the_answer_of_another(server, account, attempt, ask):
    """The same request in each of several steps: an idea that was not recorded is not the first one again."""
    numbers = iter(range(9))
    server.use(lambda request: f"idea {next(numbers)}")

    def ideas() -> list[str]:
        return [journal_now().step(f"idea {i}", ask, ("an idea",), {}) for i in range(3)]

    assert attempt(ideas) == ["idea 0", "idea 1", "idea 2"]
    assert attempt(ideas, lose=2) == ["idea 0", "idea 1", "idea 3"], "the last call and its step were lost"


def test_a_request_that_differs_is_made_and_said(server, account, attempt, ask):
    attempt(lambda: [ask("a"), ask("b"), ask("c")])
    heard: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on(CallDivergedEvent)(lambda _, event: heard.append(event.call))
        assert len(attempt(lambda: [ask("a"), ask("B"), ask("c")])) == 3
        event_bus.flush()
        assert (heard, server.paid) == ([2], 4)
        attempt(lambda: [ask("a"), ask("B"), ask("c"), ask("d")])
        event_bus.flush()
    assert (heard, server.paid) == ([2], 5), "what comes after all that was recorded differs from nothing"


# -- who is told


def test_who_asks_is_in_the_account_and_hears(account, attempt, ask):
    heard: list[CallResult] = []

    def task() -> None:
        with calling("Researcher", announced=True, on_result=heard.append):
            ask("it")

    attempt(task)
    attempt(task)
    assert account.paid == Counters({AccountKey("model", "Researcher", "gpt"): 1})
    assert [(one.model, one.replayed) for one in heard] == [("gpt", False), ("gpt", True)]
    assert heard[0].usage == heard[1].usage != Usage()
    assert caller.get() == CallContext()


def test_handlers_hear_of_calls_that_are_made_and_not_what_they_said(server, attempt, ask):
    told: list[Any] = []
    with event_bus.scoped_handlers():
        for kind in (LLMCallStartedEvent, LLMCallCompletedEvent, LLMCallFailedEvent):
            event_bus.on(kind)(lambda _, event: told.append(event))
        attempt(lambda: ask("it"), watched=True)
        attempt(lambda: ask("it"), watched=True)
        server.use(Answer("no", status=400))
        with pytest.raises(openai.BadRequestError):
            attempt(lambda: ask("else"), watched=True)
        event_bus.flush()
    assert sorted(one.type for one in told) == [
        *("llm_call_completed", "llm_call_failed", "llm_call_started", "llm_call_started")
    ]
    (completed,) = (one for one in told if one.type == "llm_call_completed")
    assert completed.usage.keys() == {"prompt_tokens", "completion_tokens"}
    assert completed.response is None


# -- where calls belong


def test_a_thread_without_a_context_is_part_of_the_only_task_there_is(server, account, attempt, ask):
    def task() -> str:
        said: list[str] = []
        began.put(lambda: said.append(ask("it")))
        assert arrived.acquire(timeout=20)
        return said.pop()

    began: Queue[Any] = Queue()
    arrived = threading.Semaphore(0)

    def outside() -> None:
        """A thread that was there before any task."""
        for _ in range(3):
            began.get(timeout=20)()
            arrived.release()

    thread = threading.Thread(target=outside)
    thread.start()
    assert attempt(task, unattributed=True) == attempt(task, unattributed=True)
    assert (server.paid, account.paid.total()) == (1, 1)
    with journaled(Journal({}, Account(), CancelScope()), unattributed=True):
        attempt(task, unattributed=True)
    thread.join(20)
    assert server.paid == 2, "there are two: it may be part of either"


def test_a_thread_is_part_of_the_task_that_began_it(server, account, attempt, ask):
    def task() -> list[str]:
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.append(ask("one")))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as pool:
            return [*said, *pool.map(ask, ["two", "three"])]

    with journaled(Journal({}, Account(), CancelScope()), unattributed=True):  # beside another
        first = attempt(task, unattributed=True)
        assert attempt(task, unattributed=True) == first
    assert (server.paid, account.paid.total()) == (3, 3)


def in_a_pool(ask: Any) -> str:
    with ThreadPoolExecutor(1) as pool:
        return str(pool.submit(ask, "it").result())


def in_a_thread(ask: Any) -> str:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(ask("it")))
    thread.start()
    thread.join()
    return said.pop()


class OneThread:
    """A thread that the first use begins, and that all of them give work to, as a client's own loop is."""

    def __init__(self) -> None:
        self._work: Queue[Any] = Queue()
        self._said: Queue[str] = Queue()

    def __call__(self, ask: Any) -> str:
        if not hasattr(self, "_thread"):
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._work.put(lambda: ask("it"))
        return self._said.get(timeout=20)

    def _run(self) -> None:
        while True:
            self._said.put(self._work.get()())


@pytest.mark.parametrize("way", [lambda: in_a_pool, lambda: in_a_thread, OneThread], ids=["pool", "thread", "queue"])
@pytest.mark.parametrize("of", ["calls", "steps"])
def test_what_a_thread_does_in_a_step_is_of_that_step(way, of, server, account, attempt, ask):
    """Whenever it is killed: what a step that is replayed asked in a thread answers no later step."""
    numbers = iter(range(100))
    server.use(lambda _: Answer(f"answer {next(numbers)}"))
    inner = durable(ask) if of == "steps" else ask

    def task() -> list[str]:
        in_thread = way()
        use = durable(lambda i: (in_thread(inner), in_thread(inner)))
        return [*use(1), *use(2), inner("it"), *use(3)]

    whole = attempt(task, unattributed=True)
    assert (len(set(whole)), server.paid) == (7, 7)
    records, paid = dict(account.recorded), server.paid
    for kept in range(len(records)):
        account.recorded = dict(list(records.items())[:kept])
        calls = sum(is_call(key) for key in account.recorded)
        said = attempt(task, unattributed=True)
        assert said[:calls] == whole[:calls], "each has its own answer"
        assert len(set(said)) == 7, "and no two have the same"
        assert server.paid - paid == 7 - calls
        paid = server.paid


def test_a_pool_of_threads_keeps_nobodys_journal(server, account, attempt, ask):
    with ThreadPoolExecutor(1) as pool:
        attempt(lambda: pool.submit(ask, "one").result(), unattributed=True)
        pool.submit(ask, "two").result()
    assert (server.paid, account.paid.total()) == (2, 1)


def test_outside_of_tasks_nothing_is_recorded(server, ask):
    assert ask("it") == ask("it")
    assert server.paid == 2


def test_other_requests_pass(server, account, attempt):
    def task() -> None:
        with httpx2.Client() as client:
            assert client.get(f"{server.url}/models").status_code == 200
            client.post(f"{server.root}/search", json={"model": "gpt"})
            client.post(f"{server.url}/messages", json={"to": "somebody"})

    attempt(task)
    assert account.recorded == {}


def test_no_secret_is_recorded(server, account, attempt):
    def task() -> None:
        with httpx2.Client(headers={"authorization": "Bearer sk-secret", "cookie": "c=sk-secret"}) as client:
            url = f"{server.url}/chat/completions?key=sk-secret".replace("//", "//me:sk-secret@")
            body = {"model": "gpt", "messages": user("it")}
            answer = client.post(url, json=body, headers={"x-request-id": "r-1"})
            answer.raise_for_status()

    attempt(task)
    (record,) = account.recorded.items()
    assert "secret" not in json.dumps(record)
    assert {name for name, _ in json.loads(record[1])["headers"]} <= {"content-type", "x-request-id"}


def test_clients_that_are_imported_later_are_journaled_too(server):
    code = """
from runner.llm.recording import journaled
from runner.journal.call_slots import is_call
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
import sys, importlib.util
assert "httpx2" not in sys.modules
class Keep(dict):
    def begin_step(self, *a, **k): ...
    def mark_sent(self, entry): ...
    def record_step(self, step, value, **about): self[step] = value
keep = Keep()
for _ in range(2):
    with journaled(Journal(keep, keep, CancelScope())):
        import openai
        client = openai.OpenAI(base_url=sys.argv[1], api_key="k")
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "it"}])
assert importlib.util.find_spec("httpx2").loader.get_source("httpx2")
import os
assert os.environ["DISABLE_AIOHTTP_TRANSPORT"] == "True", "LiteLLM's awaited calls go through httpx"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, server.url], check=True)
    assert server.paid == 1
