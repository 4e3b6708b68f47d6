"""What a supervisor makes of what workers registered."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from runner.core.jobs import Job
from runner.core.settings import WorkerSettings
from runner.journal import shared_memory
from runner.providers.memory import MemoryBroker
from runner.providers.redis import lost_messages
from runner.providers.redis.outages import NotNow
from runner.providers.redis.workers import WorkerInfo
from runner.tasks.supervisor import QUICK, QUIET, WATCH, Supervisor, _is_seen


def test_a_worker_that_does_not_say_which_connection_is_its_own_is_not_judged_by_that() -> None:
    asked: list[Any] = []

    def connected(clients: Any) -> set[int]:
        asked.append(list(clients))
        return {7}

    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    one._workers = SimpleNamespace(connected=connected)
    one._known = [
        WorkerInfo("w0", 1000, json.dumps({"server": "here"})),
        WorkerInfo("w1", 1000, json.dumps({"server": "here", "client_id": 7})),
    ]
    one._reap_disconnected()
    assert asked == [[7]]
    assert one._missing == set()


@pytest.mark.parametrize(("host", "at_first"), [(socket.gethostname(), ["dead"]), ("elsewhere", [])])
def test_a_worker_of_this_machine_of_which_no_process_lives_is_reaped_at_the_first_look(
    host: str, at_first: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared_memory, "_sent", None)
    held = shared_memory.share_sent("host-1-abcdef", "s")  # as by children of a main process that died
    nobodys = Path(held).with_name("runner-out-none-abcdef")
    nobodys.touch()
    dead: list[str] = []
    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    one._workers = SimpleNamespace(connected=lambda _: set(), reap=lambda worker, **_: dead.append(worker) or [])
    out = {"dead": str(nobodys), "orphaned": held}
    one._known = [
        WorkerInfo(name, 1000, json.dumps({"server": "here", "client_id": n, "pid": 0, "host": host, "out": out[name]}))
        for n, name in enumerate(out)
    ]
    one._reap_disconnected()
    assert dead == at_first
    one._reap_disconnected()
    assert sorted(dead) == ["dead", "orphaned"]


HERE = -1  #: stands for the process id of the test, which may be forked from the process that read this file

MAIN_PROCESS = """
import os, signal, sys, tempfile
from runner.journal import shared_memory

tempfile.tempdir = sys.argv[1]
print(shared_memory.share_sent("host-1-abcdef", "s"), flush=True)
os.closerange(3, 100)  # as a library may that makes a daemon of its process
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seen", ["here", "in a container of another", "by one that removes old files"])
def test_a_worker_that_lives_is_not_taken_for_dead_at_the_first_look(seen: str, tmp_path: Path) -> None:
    one = Supervisor(lambda: None, "s", WorkerSettings())
    dead: list[str] = []
    one._server = "here"
    one._workers = SimpleNamespace(connected=lambda _: set(), reap=lambda worker, **_: dead.append(worker) or [])
    with subprocess.Popen([sys.executable, "-c", MAIN_PROCESS, tmp_path], stdout=subprocess.PIPE, text=True) as frozen:
        assert frozen.stdout is not None
        try:
            marks = Path(frozen.stdout.readline().strip())
            os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
            if seen == "by one that removes old files":
                marks.unlink()
            elif seen != "here":  # where its pid is nobody's
                marks = marks.rename(marks.with_name(marks.name.replace(str(frozen.pid), str(1 << 30))))
            pid = frozen.pid if seen == "here" else 1 << 30
            about = {"server": "here", "client_id": 7, "pid": pid, "host": socket.gethostname(), "out": str(marks)}
            one._known = [WorkerInfo("frozen", 1000, json.dumps(about))]
            one._reap_disconnected()
        finally:
            frozen.kill()
    assert dead == []


@pytest.mark.slow
def test_the_exit_of_a_worker_of_this_machine_is_seen_at_once(tmp_path: Path) -> None:
    """Between two looks at the connections, by a follower whose leader it was, and by the leader."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        about = {"server": "here", "client_id": 7, "pid": other.pid, "host": socket.gethostname(), "out": str(tmp_path)}
        workers = [WorkerInfo("w", 1000, json.dumps(about)), WorkerInfo("x", 1000, json.dumps({**about, "pid": 0}))]
        fakes = SimpleNamespace(
            leader=lambda: "w:supervisor|here:7",
            registered=lambda *_: workers,
            connected=lambda _: {7},
            count=lambda: 1000,
        )
        follows, leads = (Supervisor(lambda: None, "s", WorkerSettings()) for _ in range(2))
        for one in (follows, leads):
            one._workers, one._server = fakes, "here"
        assert follows._follow() > 20
        for name in ("term", "checked", "leases", "lost", "overtaken", "expired"):
            leads._table.last[name] = float("inf")  # not due
        assert leads._lead() > QUICK
        other.kill()
        for one in (follows, leads):
            assert one._exits.wait(60)
            one._exited = time.monotonic()
            assert not one._exits.wait(0.001), "it is reported once"
        assert follows._follow() == leads._lead() == QUICK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "pause"),
    [
        ([], QUIET),
        ([{"pid": HERE, "host": socket.gethostname()}], QUIET),
        ([{"pid": 1 << 30, "host": socket.gethostname()}], WATCH),
        ([{"pid": HERE, "host": "elsewhere"}], WATCH),
        ([{"host": socket.gethostname()}], WATCH),
    ],
)
def test_connections_are_looked_at_less_often_where_the_kernel_reports_each_exit(
    more: list[dict[str, Any]], pause: float, tmp_path: Path
) -> None:
    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    for name in ("term", "checked", "leases", "lost", "overtaken", "expired"):
        one._table.last[name] = float("inf")  # not due
    with subprocess.Popen([sys.executable, "-c", MAIN_PROCESS, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            marks = other.stdout.readline().strip()
            said = [{"pid": other.pid, "host": socket.gethostname(), "out": marks}]
            said += [{**one, "pid": os.getpid()} if one.get("pid") == HERE else one for one in more]
            known = [WorkerInfo(f"w{n}", 1000, json.dumps({"server": "here", "client_id": n, **fields}))
                     for n, fields in enumerate(said)]  # fmt: skip
            one._workers = SimpleNamespace(registered=lambda *_: known, connected=set)
            assert one._lead() == pause
        finally:
            other.kill()
    # When it has exited, looks follow each other quickly
    assert one._exits.wait(60)
    one._exited = time.monotonic()
    assert one._lead() <= WATCH


def test_a_leader_whose_worker_has_yet_to_register_is_looked_for_again() -> None:
    asked: list[str] = []
    workers: list[WorkerInfo] = []
    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    leader = "w:supervisor|here:7"
    one._workers = SimpleNamespace(
        leader=lambda: leader,
        registered=lambda *_: asked.append(leader) or workers,
        connected=lambda _: {7},
        count=lambda: 1,
    )
    one._follow()
    workers.append(WorkerInfo("w", 1000, "{}"))
    for _ in range(3):
        one._follow()
    leader = "supervisor-host-1|here:7"  # one without a worker
    for _ in range(3):
        one._follow()
    assert asked == ["w:supervisor|here:7"] * 2 + ["supervisor-host-1|here:7"]


def test_a_look_just_after_an_exit_is_not_the_second_of_two() -> None:
    """A worker elsewhere that has reconnected has as long to register as it had."""
    dead: list[str] = []
    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    one._workers = SimpleNamespace(connected=lambda _: set(), reap=lambda worker, **_: dead.append(worker) or [])
    one._known = [WorkerInfo("w", 1000, json.dumps({"server": "here", "client_id": 7, "host": "elsewhere"}))]
    one._exited = time.monotonic()
    one._reap_disconnected()
    one._looked = float("inf")
    one._reap_disconnected()
    assert dead == []
    one._looked = float("-inf")
    one._reap_disconnected()
    assert dead == ["w"]


def test_what_workers_said_is_read_again_of_those_alone_whose_connection_is_not_open_here() -> None:
    asked: list[list[str]] = []

    def registered(known: list[WorkerInfo]) -> list[WorkerInfo]:
        asked.append([worker.id for worker in known])
        return workers

    workers = [
        WorkerInfo("open", 1000, json.dumps({"server": "here", "client_id": 7})),
        WorkerInfo("closed", 1000, json.dumps({"server": "here", "client_id": 8})),
        WorkerInfo("before", 1000, json.dumps({"server": "before it failed over", "client_id": 7})),
        WorkerInfo("silent", 1000, ""),
    ]
    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    one._workers = SimpleNamespace(connected=lambda _: {7}, registered=registered, reap=lambda *_, **__: [])
    for name in ("term", "checked", "leases", "lost", "overtaken", "expired"):
        one._table.last[name] = float("inf")  # not due
    for _ in range(2):
        one._table.last["known"] = float("-inf")
        one._lead()
    assert asked == [[], ["open"]]
    one._workers.connected = lambda _: None  # the server does not tell it
    one._reap_disconnected()
    assert one._open == []


class StandsStill:
    """A store on a clock of its own, at whose n-th call all stand still for five leases of a worker that lives."""

    def __init__(self, n: int) -> None:
        self.at, self.n, self.calls, self.reaped = 1000.0, n, list[str](), list[str]()
        self.lapses, self.beats_again, self.ahead = float("inf"), 0.0, 0.0
        worker = WorkerInfo("w", 0, json.dumps({"server": "here", "client_id": 7, "lease": 1}))
        self.answers: dict[str, Any] = {
            "me": ("here", 1),
            "elect": True,
            "leader": "",
            "registered": [worker],
            "connected": {7},
            "missing": set(),
            "count": 1,
            "check_runs": (0, []),
        }
        self.home, self.client = "", SimpleNamespace(info=lambda _: {"uptime_in_seconds": 900}, missing=self.missing)

    def monotonic(self) -> float:
        return self.at

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **fields: Any) -> Any:
            self.at += 0.001
            found = self._answer(name, *args)
            if len(self.calls) == self.n:
                self.befalls()
            self.calls.append(name)
            return found

        return ask

    def befalls(self) -> None:
        self.lapses, self.beats_again = self.at + 1, self.at + 5 + 1.5
        self.at += 5

    def _answer(self, name: str, *args: Any) -> Any:
        if name == "now":
            return int((self.at + self.ahead) * 1000)
        if name == "lapsed":
            lapses = self.lapses if self.at < self.beats_again else float("inf")
            return [("w", 0)] if args[0] > lapses * 1000 else []
        if name == "reap":
            self.reaped.append(args[0])
            return []
        return self.answers.get(name)


class SetForward(StandsStill):
    """A store whose clock is set forward by a minute at the n-th call: its workers live, and beat again in time."""

    def befalls(self) -> None:
        self.lapses, self.beats_again, self.ahead = self.at + 1, self.at + 0.9, 60.0
        self.answers["leader"] = ""  # who led has lost its term


class SetForwardUnderAnother(SetForward):
    """The same, while another supervisor leads."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.answers |= {"leader": "another|here:9", "connected": {7, 9}}


@pytest.mark.parametrize(
    "kind", [StandsStill, *(pytest.param(one, marks=pytest.mark.slow) for one in (SetForward, SetForwardUnderAnother))]
)
def test_no_task_is_taken_of_workers_that_live_wherever_all_stand_still_or_the_clock_is_set_forward(
    monkeypatch: pytest.MonkeyPatch, kind: type[StandsStill]
) -> None:
    monkeypatch.setattr(lost_messages, "missing", lambda client, home: client.missing())
    for n in range(1 if kind is not StandsStill else 0, 60):  # it has asked who it is, and knows both clocks
        store = kind(n)
        one = Supervisor(lambda: None, "s", WorkerSettings(lease=1.0))

        def wait(timeout: float, store: StandsStill = store, one: Supervisor = one) -> bool:
            store.at += timeout
            if store.at > store.beats_again + 1 and len(store.calls) > 60:
                one.stop()
            return False

        monkeypatch.setattr(one._exits, "wait", wait)
        monkeypatch.setattr("runner.tasks.supervisor.Workers", lambda _, store=store: store)
        monkeypatch.setattr("runner.tasks.supervisor.time", store)
        one.run()
        assert store.reaped == [], (n, store.calls[n])
    calls = {"registered", "connected", "lapsed", "move_due", "redeliver", "missing", "check_runs", "trim", "relist"}
    assert calls <= set(store.calls[:60]) or kind is SetForwardUnderAnother


@pytest.mark.parametrize("error", [NotNow("OOM", "its memory is full"), NoPermissionError("NOPERM")])
@pytest.mark.parametrize("refused", ["me", "info", "now"])
def test_what_is_refused_as_a_supervisor_arrives_is_asked_again_and_leaves_nothing_half_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str, error: Exception
) -> None:
    """It knew its name, and not the store's clock, which then seemed to have been set forward by 56 years."""
    asked = [refused]

    def ask(name: str, answer: Any) -> Any:
        if name in asked:
            asked.remove(name)
            raise error
        return answer

    workers = SimpleNamespace(
        me=lambda: ask("me", ("here", 1)),
        now=lambda: ask("now", 1_800_000_000_000),
        client=SimpleNamespace(info=lambda _: ask("info", {"uptime_in_seconds": 900})),
        leader=lambda: "",
        elect=lambda *_: True,
    )
    looks = iter([SimpleNamespace(**vars(workers)) for _ in range(2)])
    one = Supervisor(lambda: None, "s", WorkerSettings(lease=1.0))
    monkeypatch.setattr("runner.tasks.supervisor.Workers", lambda _: next(looks))
    monkeypatch.setattr(one, "_lead", lambda: one._compare_clocks(one._workers.now()) or one.stop() or 0.0)
    monkeypatch.setattr(one._exits, "wait", lambda seconds: False)
    one.run()
    assert next(looks, None) is None, "it arrived anew"
    assert one._me == "s|here:1"
    assert one._since_start == pytest.approx(time.monotonic() - 900, abs=60)
    assert not [line for line in caplog.messages if "clock went forward" in line]


@pytest.mark.slow
def test_a_worker_of_this_machine_is_seen_to_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(pid: int, out: str, host: str = socket.gethostname()) -> WorkerInfo:
        return WorkerInfo("w", 1000, json.dumps({"pid": pid, "out": out, "host": host}))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared_memory, "_sent", None)
    ours = shared_memory.share_sent("host-1-abcdef", "s")
    assert _is_seen(worker(os.getpid(), ours))
    assert not _is_seen(worker(os.getpid(), ours, "elsewhere"))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not _is_seen(worker(ended.pid, ours)), "it is a zombie; its children still have the file"
    assert not _is_seen(worker(ended.pid, ours))
    (again := tmp_path / "again").touch()
    assert not _is_seen(worker(os.getpid(), str(again))), "another has its number, as where a container starts again"
    assert not _is_seen(worker(os.getpid(), ""))
    assert not _is_seen(WorkerInfo("w", 1000, "{}"))


def test_those_who_watch_are_told_of_workers_once_all_tasks_were_handed_back() -> None:
    broker = MemoryBroker()

    def reap(worker: str, **_: Any) -> list[Job]:
        return [Job("r-1", "main", worker, 1)]

    one = Supervisor(lambda: None, "s", WorkerSettings(), broker)
    one._workers = SimpleNamespace(reap=reap)
    for worker, about in (("w0", '{"host": "here"}'), ("w1", "")):
        one._reap(WorkerInfo(worker, 1000, about), "its connection closed")
    assert broker.lost == []
    one._report_lost()
    reason = "worker w0 is gone: its connection closed"
    assert broker.lost == [("w0@here", [Job("r-1", "main", "w0", 1)], reason)]  # the other never said where it was
