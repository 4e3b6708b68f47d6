"""Calls of models by gRPC: what is asked, paid and in doubt, and what their callers get, which is what they get alone.

They are made by a program (`rpc_checks.py`), of a model that is another one (`rpc_server.py`): gRPC has threads of its
own, which the process of the tests is to be without.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...support.soak import in_soak

if importlib.util.find_spec("grpc") is None:
    pytest.skip("grpc is not installed", allow_module_level=True)
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[3]
ONE = ("sync", "with_call", "future", "awaited")
STREAMS = ("streamed", "streamed_on_one_thread", "awaited_streamed", "awaited_read")
KEPT = ("sync", "awaited_streamed")  #: a whole answer and a stream, waited for and awaited; the soak has all
PAID, PASSED, NOT_SENT, IN_DOUBT = (1, 1, 0, 0), (1, 0, 0, 1), (0, 0, 0, 0), (1, 0, 1, 1)
GIVEN_UP = (1, 0, 1, 0)
EXPECTED: dict[str, tuple[tuple[str, ...], tuple[int, int, int, int]]] = {
    # what is told, or met: by whom, and what is asked, paid, in doubt, and asked again by the next attempt
    "nothing": (ONE + STREAMS, PAID),
    "wait for ready": (ONE + STREAMS, PAID),
    "gzip": (ONE + STREAMS, PAID),
    "5 MB": (ONE + STREAMS, PAID),
    "an empty answer": (ONE, PAID),
    "another method": (ONE + STREAMS, PASSED),
    "refused": (ONE + STREAMS, PASSED),
    "busy": (ONE + STREAMS, PASSED),
    "refused, and then another": (("sync", "with_call", "awaited"), (2, 1, 0, 0)),
    "busy, and then another": (("sync", "with_call", "awaited"), (2, 1, 0, 0)),
    "busy once, and repeated": (ONE, (2, 1, 0, 0)),
    "nobody there": (ONE + STREAMS, NOT_SENT),
    "its channel is closed": (ONE + STREAMS, NOT_SENT),
    "more than may be sent": (ONE + STREAMS, NOT_SENT),
    "not answered in time": (("future", *STREAMS), IN_DOUBT),
    "not answered in time, given up": (("sync", "with_call", "awaited"), GIVEN_UP),
    "lost": (ONE + STREAMS, IN_DOUBT),
    "cancelled": (("future", *STREAMS), IN_DOUBT),
    "cancelled, given up": (("awaited",), GIVEN_UP),
    "half read": (STREAMS, IN_DOUBT),
    "breaks off": (STREAMS, IN_DOUBT),
    "stops midway": (STREAMS, IN_DOUBT),
    "stalls, until its deadline": (STREAMS, IN_DOUBT),
    "an answer of another version": (("sync", "with_call", "future", "streamed", "streamed_on_one_thread"), IN_DOUBT),
    "an answer of another version, awaited": (
        ("awaited", "awaited_streamed", "awaited_read"),
        PAID,
    ),  # its status is OK
}
DEADLINES = ("not answered in time", "not answered in time, given up", "stalls, until its deadline")


def told(*cases: str, **settings: str) -> dict[str, Any]:
    """What came of each case."""
    program = [sys.executable, "-m", "tests.integration.llm.rpc_checks", *cases]
    ran = subprocess.run(
        program, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=280
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(json.loads(line) for line in ran.stdout.splitlines())


@pytest.mark.parametrize("client", [*KEPT, *in_soak(*(client for client in ONE + STREAMS if client not in KEPT))])
def test_what_is_asked_paid_and_in_doubt(client: str) -> None:
    settings = [name for name, (clients, _) in EXPECTED.items() if client in clients]
    found = told(*(f"{client},{name}" for name in settings))
    for name in settings:
        one = found[f"{client},{name}"]
        counted = [one["asked first"], one["paid"], one["in doubt"], one["asked again"]]
        expected = list(EXPECTED[name][1])
        if name in DEADLINES:  # on a slow machine it is over before the model is asked
            counted, expected = counted[1:3], expected[1:3]
        assert counted == expected, (name, one)
        assert one["asked again"] == 0 or "given up" not in name
        assert one["first"] == one["again"] == one["alone"], (name, one)


@pytest.fixture(scope="module")
def checks() -> dict[str, Any]:
    """What came of each case of more than one call, of one program; the setting is of the methods that one asks."""
    cases = ("forked", "side_by_side", "kept", "named", "redirected", "drained", "struck")  # a fork is before threads
    return told(*cases, RUNNER_MODEL_ENDPOINTS="127.0.0.1:*/ours.Models/*")


def test_calls_of_the_same_moment_are_each_recorded_once(checks: dict[str, Any]) -> None:
    found = checks["side_by_side"]
    assert found == {"same": True, "came": 16, "most": 2, "paid": 32}


def test_a_client_that_is_kept_for_the_process_works_in_the_event_loop_of_each_task(checks: dict[str, Any]) -> None:
    found = checks["kept"]
    assert (found["asked"], found["paid"]) == (6, 6)
    assert [text.count(f"task {number}") for number, text in enumerate(found["found"])] == [4, 4, 4]


def test_a_task_that_is_to_stop_does_once_its_call_is_recorded_and_its_next_one_is_not_made(
    checks: dict[str, Any],
) -> None:
    expected = ["Interrupted", "Interrupted", True, 1, 1, 0]
    assert checks["drained"] == dict.fromkeys(ONE + STREAMS, expected)


def test_what_comes_in_the_turn_in_which_its_task_is_stopped_is_recorded_and_not_asked_again(
    checks: dict[str, Any],
) -> None:
    expected = {"whole": ["TimedOut", 1, 1, 1, 0], "streamed": ["TimedOut", 3, 1, 1, 0]}
    assert checks["struck"] == expected


def test_a_forked_process_is_counted(checks: dict[str, Any]) -> None:
    where = "127.0.0.1:PORT/google.ai.generativelanguage.v1beta.GenerativeService/GenerateContent"
    assert checks["forked"] == {"asked": 1, "paid": 0, "past": [where]}


def test_methods_that_a_setting_names_are_recorded_and_what_only_looks_like_one_is_counted(
    checks: dict[str, Any],
) -> None:
    found = checks["named"]
    where = "127.0.0.1:PORT/ours.Models"
    past = ["127.0.0.1:PORT/theirs.Models/Embed", f"{where}/Tell"]
    assert found == {"models": [f"{where}/Ask"], "paid": 1, "past": past}


def test_where_a_stand_in_answers_none_is_made(checks: dict[str, Any]) -> None:
    found = checks["redirected"]
    assert found == {"said": ["UsageError"], "by": len(ONE + STREAMS), "asked": 0, "in doubt": 0}
