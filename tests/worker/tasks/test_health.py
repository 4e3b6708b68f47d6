"""``runner doctor --worker`` looks at one worker: a frozen one is not healthy because another lives."""

import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

HOST = socket.gethostname()


@pytest.fixture
def check(fleet: Any) -> Callable[[str], tuple[int, str]]:
    """Its exit code, and what it says."""

    def look(which: str) -> tuple[int, str]:
        done = fleet.runner("doctor", "--worker", which)
        return done.returncode, (done.stdout + done.stderr).strip()

    return look


def test_a_frozen_worker_is_unhealthy_though_another_lives(fleet: Any, check: Any, eventually: Any) -> None:
    # Given two workers
    one, other = (fleet.start("--concurrency", "2", "--lease", "10", "--label", label) for label in ("gpu", "eu"))
    main, pool = one.main_pid(), eventually(lambda: len(one.children()) == 2 and one.children(), why="its pool is up")
    name, neighbour = f"{HOST}:{main}", f"{HOST}:{other.main_pid()}"
    code, said = check(name)
    assert (code, said.startswith(f"ok  worker {name}: alive; its lease is valid for ")) == (0, True)
    # One stopped process of several is the worker's own affair: it kills it after a lease
    os.kill(pool[0], signal.SIGSTOP)
    assert check(name)[0] == 0
    os.kill(pool[0], signal.SIGCONT)
    # When its main process, its parent, or its whole pool is stopped
    frozen = {
        f"its main process {main} is stopped": [main],
        f"its parent {one.pid} is stopped": [one.pid],
        "all processes of its pool are stopped (2)": pool,
    }
    for why, pids in frozen.items():
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        # Then it is unhealthy, while the other is well, and so is the fleet
        assert check(name) == (1, f"!!  worker {name}: {why}")
        assert check(neighbour)[0] == 0
        doctor = fleet.runner("doctor")
        assert (doctor.returncode, ", gpu)" in doctor.stdout, ", eu)" in doctor.stdout) == (0, True, True)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: check(name)[0] == 0, why="it goes on")
    # And it is so when its lease has lapsed, and when others have taken back what it had
    one.signal_group(signal.SIGSTOP)
    eventually(lambda: not one.about(), why="the other reaps it")
    assert check(name) == (1, f"!!  worker {name}: not registered: `runner doctor` lists the workers that are")


def test_self_is_the_worker_that_is_here(fleet: Any, check: Any) -> None:
    none = f"no worker on {HOST} whose processes are visible here is registered"
    assert check("self") == (1, f"!!  worker self: {none}: `runner doctor` lists the workers that are")
    one = fleet.start("--concurrency", "1")
    assert check("self")[0] == 0
    said = json.loads(fleet.runner("doctor", "--worker", "self", "--json").stdout)
    assert [(found["what"], found["ok"], found["exit_code"]) for found in said] == [("worker", True, 0)]
    os.kill(one.main_pid(), signal.SIGSTOP)
    assert check("self") == (1, f"!!  worker {HOST}:{one.main_pid()}: its main process {one.main_pid()} is stopped")
    os.kill(one.main_pid(), signal.SIGCONT)
    other = fleet.start("--concurrency", "1")
    names = sorted(f"{HOST}:{worker.main_pid()}" for worker in (one, other))
    expected = f"error: several workers run on {HOST}; choose one: --worker {names[0]} or --worker {names[1]}"
    assert check("self") == (2, expected)


@pytest.mark.parametrize("which", ["here", ":7", "host:x", "host:0", ""])
def test_who_is_meant_is_said_plainly(which: str, check: Any) -> None:
    expected = f"error: --worker takes HOST:PID as `runner doctor` lists it, or self; not {which!r}"
    assert check(which) == (2, expected)


def test_a_store_that_is_away_is_no_fault_of_the_worker(own_server: Any, own_fleet: Any) -> None:
    own_fleet.start("--concurrency", "1")
    own_server.kill()
    assert own_fleet.runner("doctor", "--worker", "self").returncode == 4
