"""The scripts on a clock that tests set, and connections that lose answers."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from redis import Redis
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.exceptions import ConnectionError

from runner.client import forking
from runner.journal.acknowledged_writes import Logs
from runner.providers.memory import task as memory_task
from runner.providers.redis import claimed_steps, outages, rights, scripts, store
from runner.providers.redis.pipelined import PipelinedConnection

from .observed import TEST_KEY

EXAMPLES = os.environ.get("RUNNER_TEST_EXAMPLES")
"""How many histories to try: long ones, at random, a failing one made short. Without it a few, always the same."""

settings.register_profile(
    "providers",
    max_examples=int(EXAMPLES or 8),
    stateful_step_count=80 if EXAMPLES else 50,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="session", autouse=True)
def nobody_was_frozen() -> Iterator[None]:
    """However slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claimed_steps, "AWAY", 3600)
        patch.setattr(outages, "MENDED", 0)  # keys that are somebody else's stay so: most clients here remove none
        yield


@cache
def watched(name: str) -> scripts.LuaScript:
    """A script on the test's clock that fails where a command follows its first write which it neither called before
    with the same key, nor asked whether it may be called with this key, or with all that begin as it does. A look that
    is refused where it is tried leaves out one of many."""
    with pytest.MonkeyPatch.context() as patch:
        reads = ",".join(f"{command}=1" for command in sorted(scripts._READS))
        patch.setattr(rights, "PRELUDE", f"{_WATCHED.replace('READS', reads)} {rights.PRELUDE}")
        return plain(name, scripts.TEST_CLOCK)


plain = scripts.load.__wrapped__

_WATCHED = """
    local server, wrote, known, all, tried, in_try = redis, false, {}, {}, 0, pcall
    local redis = setmetatable({}, {__index = server})
    local MANY = {COPY = 2, RENAME = 2, DEL = 1000, EXISTS = 1000, MGET = 1000}
    function redis.acl_check_cmd(command, key, ...)
      local from = string.match(key, "^(.*)" .. string.char(1))
      if wrote and from then error({err = "ERR what it needs is asked after the first write"}) end
      if from then all[command] = from else known[command .. key] = true end
      return server.acl_check_cmd(command, key, ...)
    end
    local function pcall(...)
      tried = tried + 1
      local found = {in_try(...)}
      tried = tried - 1
      return unpack(found)
    end
    local function watched(command, ...)
      for i, key in ipairs({...}) do
        if i > (MANY[command] or 1) or key == "TEST_KEY" then break end
        local asked = all[command] and string.sub(key, 1, #all[command]) == all[command]
        if wrote and not (known[command .. key] or asked or tried > 0 and ({READS})[command]) then
          error({err = "ERR nobody asked whether it may " .. command .. " " .. key})
        end
        known[command .. key] = true
      end
      return function(answer)
        wrote = wrote or not (({READS})[command] or command == "HSETNX" and answer == 0)
        return answer
      end
    end
    function redis.call(...) return watched(...)(server.call(...)) end
    function redis.pcall(...) return watched(...)(server.pcall(...)) end
""".replace("TEST_KEY", TEST_KEY).replace("\n", " ")


class Clock:
    """The store's time, which goes on only when told to. It begins at the server's own, as lifetimes are real."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.reset()

    def reset(self) -> None:
        """Begin anew, after the server was emptied."""
        seconds, micros = self._redis.time()
        self.now = seconds * 1000 + micros // 1000
        self._redis.set(TEST_KEY, self.now)

    def go_on(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        self._redis.set(TEST_KEY, self.now)


class LossyLine(PipelinedConnection):
    """A line that loses answers: the command was done, and nobody heard."""

    lose = 0
    lose_events = ""  #: the next that go without being waited for, ``before`` they are there or ``after``

    def __init__(self, client: Redis) -> None:
        super().__init__(client)
        self._client, self._beside = client, list[LossyLine]()

    def beside(self, number: int) -> "LossyLine":
        """Another one, the same for the same number."""
        while len(self._beside) <= number:
            self._beside.append(LossyLine(self._client))
        return self._beside[number]

    def end(self) -> None:
        """Close it, and those beside it."""
        for one in (self, *self._beside):
            one.close()

    def send_nowait(self, *command: Any, heard: Callable[[Any], object] | None = None) -> None:
        lost, self.lose_events = (self.lose_events, "") if heard is not None else ("", self.lose_events)
        if lost == "before":
            self.close()
            heard(None)
            return
        super().send_nowait(*command, heard=heard)
        if lost == "after":
            self.arrived()
            self.close()

    def post(self, command: bytes) -> None:
        super().post(command)
        if not self._closed:
            self.arrived()

    def arrived(self) -> None:
        """Return when the server has done all that was sent."""
        while True:
            reader = hiredis.Reader(notEnoughData=NOT_ENOUGH_DATA)
            reader.feed(self._connection._sock.recv(1 << 20, socket.MSG_PEEK))
            if sum(1 for _ in iter(reader.gets, NOT_ENOUGH_DATA)) >= len(self._unread):
                return

    def ask(self, *command: Any) -> Any:
        answer = super().ask(*command)
        if self.lose:
            self.lose -= 1
            self.close()
            raise ConnectionError("the answer was lost")
        return answer

    def ask_all(self, commands: bytes, many: int, usual: Any = None) -> Any:
        answers = super().ask_all(commands, many, usual)
        if self.lose:
            self.lose -= 1
            self.close()
            self.missed()
            return None
        return answers


@pytest.fixture
def clock(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Every script runs on this clock, and nothing pauses before it asks again."""
    monkeypatch.setattr(scripts, "load", watched)
    monkeypatch.setattr(outages, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))
    one = Clock(redis)
    told = SimpleNamespace(strftime=time.strftime, gmtime=time.gmtime, time=lambda: one.now / 1000)
    monkeypatch.setattr(scripts, "time", told)  # the ids of checkpoints begin with it
    return one


@pytest.fixture
def nonces(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``nonces.next`` is the nonce of the next claim, so that a claim can be asked for again."""
    holder = SimpleNamespace(next="")
    random = SimpleNamespace(
        urandom=lambda size: SimpleNamespace(hex=lambda: holder.next) if size == 8 else os.urandom(size)
    )
    monkeypatch.setattr(store, "os", random)
    monkeypatch.setattr(memory_task, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=holder.next)))
    return holder


@pytest.fixture
def line(redis: Redis) -> LossyLine:
    """A worker's own connection."""
    one = LossyLine(redis)
    yield one
    one.end()


@pytest.fixture
def driver(redis: Redis, line: LossyLine, clock: Clock) -> Any:
    """A client and a worker in one, on the test's clock."""
    from .driver import Driver

    return Driver(redis, line)


@pytest.fixture
def fork(redis: Redis, clock: Clock) -> Any:
    """Forks a run; gives the branch's name."""

    def run(run_id: str, edits: Any = None, *, inputs: Any = None, checkpoint: str | None = None,
            source: str | None = None, branch: str | None = None) -> str:  # fmt: skip
        return forking.fork(
            redis, run_id, checkpoint=checkpoint, source=source, branch=branch, inputs=inputs or {}, edits=edits or {}
        )[0]

    return run


@pytest.fixture
def logs() -> Logs:
    """What the processes of a worker remember."""
    return Logs(2)
