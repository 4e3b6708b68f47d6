"""Real servers, real workers. A test waits for what it expects, with a deadline, and says what it saw instead."""

import contextlib
import functools
import gc
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers as constants
from hypothesis.internal.entropy import deterministic_PRNG
from redis import Redis

from runner.client import Client
from runner.core import hash_seed
from runner.events import dispatch, kickoff
from runner.testing import Fleet, RedisServer, eventually
from runner.testing import fleet as testing_fleet

from .support import pools, shares
from .support.fork_server import ForkServer
from .support.left_behind import LeftBehind
from .support.processor_time import ProcessorTime
from .support.same_process import SameProcess
from .support.session_template import SessionTemplate
from .support.side_by_side import SideBySide
from .support.starts_nothing import StartsNothing

TESTS = Path(__file__).parent
QUICK = TESTS / "unit"  #: what the quick loop is, `pytest -m fast`
IN_MEMORY = Path("/dev/shm")  #: where Linux has files that no disk holds
SOAK = TESTS / "soak"  #: what is run only when asked for: the large sizes of what others hold small
WORKERS = TESTS / "worker"  #: where a test of each pool is one of one pool
SERVED = {"shared_server", "own_server"}  #: fixtures that start something

# Whatever the shell says, bytecode is kept: else each of hundreds of processes compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Commands and workers restart themselves where there is none: they would be forked of nothing (see `fork_server`).
os.environ.setdefault(hash_seed.NAME, hash_seed.SEED)

# A client of HTTP reads the authorities that it trusts as it is made, a hundred and fifty of them: 22 ms of the
# processor's time, for thousands of clients of models. Here they trust one, which signs nothing.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support/authority.pem")

# A shell that starts this in the background has it ignore the first two, `nohup` the third, and all that it starts
# would.
# This process outlives its terminal all the same: a handler is not handed on to what it starts.
for _signum, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(_signum) == signal.SIG_IGN:
        signal.signal(_signum, _handler)

# Sockets are in folders there, and the path of one has at most 104 characters.
if len(tempfile.gettempdir()) > 45:
    os.environ["TMPDIR"] = "/tmp"
    tempfile.tempdir = None  # it is looked for again

_is_quick = pytest.StashKey[bool]()
_template = pytest.StashKey[SessionTemplate]()
_imported = 0  #: modules that no collection looks through
MANY = 20  #: as many more are worth looking through all that there is once


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--soak``, or RUNNER_TEST_SOAK; ``--processor-time``, for one process."""
    parser.addoption("--processor-time", action="store_true", help="what each file costs the processor")
    parser.addoption("--soak", action="store_true", default=bool(os.environ.get("RUNNER_TEST_SOAK")), help="the soak")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The quick loop is without what runs tests again, unless that is asked for: it has a thread."""
    if config.getoption("markexpr") == "fast" and not config.getoption("reruns", None):
        config.pluginmanager.unregister(name="rerunfailures")


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout looks
def pytest_configure(config: pytest.Config) -> None:
    """In the quick loop properties are held against fewer examples, and files are in memory where there is that."""
    if config.getoption("processor_time"):
        config.pluginmanager.register(ProcessorTime())
    config.pluginmanager.register(SameProcess(), "same_process")
    gc.disable()  # until all is collected: what is imported stays
    config.stash[_is_quick] = config.getoption("markexpr") == "fast"
    config.pluginmanager.register(LeftBehind(threads=config.stash[_is_quick]))
    if not config.option.collectonly:  # what it adds to an interpreter stays
        config.pluginmanager.register(StartsNothing(all_threads=config.stash[_is_quick]))
    if config.stash[_is_quick]:
        config.pluginmanager.register(SideBySide())
        hypothesis.settings.register_profile("fast", max_examples=6)
        hypothesis.settings.load_profile("fast")
        # It would read all modules for constants, for few of so few examples: a tenth of what it takes to begin.
        constants._get_local_constants = lambda: constants._local_constants
        dispatch.IDLE_SECONDS = 0.01  # threads of handlers end with their test, which waits for them
        if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK):
            os.environ["TMPDIR"] = str(IN_MEMORY)
            tempfile.tempdir = None  # it is looked for again
    elif (given := getattr(config, "workerinput", None)) and config.args == config.getini("testpaths"):
        folders = [one for one in shares.parts(TESTS) if not pytest_ignore_collect(one, config)]
        number = int(given["workerid"].removeprefix("gw"))
        config.args[:] = map(str, shares.turned(folders, number % given["workercount"], given["workercount"]))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The soak is run only when asked for; the quick loop does not even import what is not of it."""
    if collection_path.is_relative_to(SOAK) and not config.getoption("soak"):
        return True
    elsewhere = TESTS in collection_path.parents and not _is_of_the_quick(collection_path)
    return True if config.stash[_is_quick] and elsewhere else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """How many processes ``-n auto`` means: four for each core, as tests of workers wait for most of their time.

    The quick loop has none: each would import all of it once more, which is a third of what it does.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 0 if config.getoption("markexpr") == "fast" else 4 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """The processes of a whole test run on this machine are forked from one that has read the tests."""
    is_whole = config.args == config.getini("testpaths") and sys.platform == "linux"
    if is_whole and all(one.popen and not (one.python or one.chdir or one.via) for one in specs):
        config.stash[_template] = template = SessionTemplate(uuid.uuid4().hex, str(config.rootpath))
        for one in specs:
            one.python = template.python()


def pytest_unconfigure(config: pytest.Config) -> None:
    """What was started for the session ends with it."""
    if template := config.stash.get(_template, None):
        template.close()


@pytest.hookimpl(trylast=True)  # of what -m left
def pytest_collection_finish(session: pytest.Session) -> None:
    """Each process of xdist begins with its share of the long tests. Nothing looks again through what was imported."""
    if given := getattr(session.config, "workerinput", None):
        session.items[:] = shares.dealt(session.items, TESTS, given["workercount"])
    global _imported
    with deterministic_PRNG():  # it looks with the collector for what has its source, and finds nothing that is frozen
        gc.enable()
    gc.freeze()
    _imported = len(sys.modules)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # when all fixtures are gone that go
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A test begins in no kickoff, also where an event outside of any left one in this thread's context.

    What a file's tests imported stays as well: each collection after it would look through it.
    """
    global _imported
    kickoff.depth.set(0)
    kickoff.enter(None)
    try:
        return (yield)
    finally:
        if (nextitem is None or nextitem.path != item.path) and len(sys.modules) > _imported + MANY:
            gc.collect()
            gc.freeze()
            _imported = len(sys.modules)


@pytest.hookimpl(tryfirst=True)  # before -m looks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What stands in the quick folder is fast, unless it is marked as slow or has a server; in the soak's, soak."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)  # in whatever order they were read
    for path, given in itertools.groupby(items, lambda item: item.path):
        of_file = list(given)
        if path.is_relative_to(SOAK):
            for item in of_file:
                item.add_marker(pytest.mark.soak)
        if path.is_relative_to(WORKERS):
            for item in pools.left_to_the_soak(of_file):
                item.add_marker(pytest.mark.soak)
        if _is_of_the_quick(path):
            for item in of_file:
                if not (item.get_closest_marker("slow") or SERVED & set(getattr(item, "fixturenames", ()))):
                    item.add_marker(pytest.mark.fast)
    if not config.getoption("soak") and (left_out := [item for item in items if item.get_closest_marker("soak")]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def _is_of_the_quick(path: Path) -> bool:
    return path.is_relative_to(QUICK)


def _not_at_us(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """``send``, but for a pid that stands for many: 0 is our own group, the test command with it; -1 is everybody."""

    @functools.wraps(send)
    def guarded(pid: int, signum: int) -> None:
        if pid <= 1 or (send is _killpg and pid == os.getpgrp()):
            raise AssertionError(f"signal {signum} for {pid}, which is the test run itself")
        send(pid, signum)

    return guarded


_killpg = os.killpg


def _not_here(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """``leave``, but for code of the product in this very process; what was forked from it may."""
    here = os.getpid()

    @functools.wraps(leave)
    def guarded(status: int) -> NoReturn:
        if os.getpid() == here and str(sys._getframe(1).f_globals.get("__name__")).startswith("runner."):
            raise AssertionError(f"os._exit({status}) in the test run itself")
        leave(status)

    return guarded


@pytest.fixture(autouse=True, scope="session")
def the_test_run_goes_on() -> Iterator[None]:
    """What would end the whole test command fails its test: a signal for a process that was not found (a pid of 0), or
    the product's own end of a worker's process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", _not_here(os._exit))
        patch.setattr(os, "kill", _not_at_us(os.kill))
        patch.setattr(os, "killpg", _not_at_us(os.killpg))
        yield


@pytest.fixture
def started_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each worker and command is started as a person's is, by an interpreter that imports all by itself."""
    monkeypatch.setattr(testing_fleet, "launch", subprocess.Popen)


@pytest.fixture(autouse=True)
def environment_is_put_back() -> Iterator[None]:
    """Commands put their options there, and some tests run them in this process: the next has none of it."""
    now: dict[bytes, bytes] = os.environ._data  # decoding all of it twice a test is slow
    before = now.copy()
    yield
    for name in now.keys() - before.keys():
        del os.environb[name]
    os.environb.update(before.items() - now.items())


@pytest.fixture(autouse=True, scope="session")
def processes_are_forked(pytestconfig: pytest.Config) -> Iterator[ForkServer]:
    """Commands and workers have imported already what they need. The processes of a session have that in common."""
    session: str = getattr(pytestconfig, "workerinput", {}).get("testrunuid", "")
    folder = Path(tempfile.gettempdir(), f"rt-forks-{session}") if session else None
    with contextlib.closing(ForkServer(folder)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing_fleet, "launch", server.popen)
        yield server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """One server for the whole session; tests use `server`, which empties it."""
    with RedisServer() as one:
        yield one


@pytest.fixture
def server(shared_server: RedisServer) -> Iterator[RedisServer]:
    """An empty server; fails the test if it leaves a key behind that nobody listed or that never goes."""
    shared_server.flush()
    yield shared_server
    shared_server.flush()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may kill."""
    with RedisServer() as one:
        yield one


class Backup:
    """What a server held at one time; `restore` puts it back under whoever is at work."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url)
        self._keys = {key: (self._redis.dump(key), max(self._redis.pttl(key), 0)) for key in self._redis.keys("*")}

    def restore(self) -> None:
        """All of it, at one stroke; what came since is gone."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.flushall()
            for key, (value, ttl) in self._keys.items():
                pipe.restore(key, ttl, value)
            pipe.execute()
        self._redis.close()


@pytest.fixture
def backup() -> Callable[[str], Backup]:
    """Takes a backup of the server with this URL."""
    return Backup


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Redis]:
    """A decoding client of the empty server."""
    with Redis.from_url(server.url, decode_responses=True, encoding_errors="surrogateescape") as client:
        yield client


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    """The Python client on the empty server."""
    with Client(server.url) as one:
        yield one


@pytest.fixture
def write_crew(tmp_path: Path) -> Callable[..., Path]:
    """Writes a crew file (and files beside it) in a folder of its own; gives its path."""

    def write(code: str, name: str = "crew", **beside: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "crew.py").write_text(textwrap.dedent(code))
        for file, text in beside.items():
            (folder / file.replace("__", ".")).write_text(textwrap.dedent(text))
        return folder / "crew.py"

    return write


WITHOUT = {"RUNNER_ENVIRONMENTS": "off"}
"""Workers are as they were started, whatever is beside a crew; but for the tests of that, which turn it on."""


@pytest.fixture
def fleet(server: RedisServer) -> Iterator[Fleet]:
    """Workers on the empty server."""
    with Fleet(server.url, settings={**WITHOUT}) as one:
        yield one
        one.end()
        print(one.log()[-4000:])  # shown where the test failed


@pytest.fixture
def own_fleet(own_server: RedisServer) -> Iterator[Fleet]:
    """Workers on a server that the test may kill."""
    with Fleet(own_server.url, settings={**WITHOUT}) as one:
        yield one


@pytest.fixture(scope="session")
def held_back() -> Callable[..., contextlib.AbstractContextManager[tuple[Any, threading.Event]]]:
    """Gives a model server that answers nobody until its event is set: then "Done.", or as the function given does."""
    from runner.testing import ModelServer

    @contextlib.contextmanager
    def serving(answer: Callable[[Any], str] = lambda _: "Done.") -> Iterator[tuple[Any, threading.Event]]:
        may_answer = threading.Event()
        with ModelServer(lambda request: answer(request) if may_answer.wait(300) else "Late.") as models:
            yield models, may_answer

    return serving


@pytest.fixture(name="eventually", scope="session")
def _eventually() -> Callable[..., Any]:
    """`eventually`, as a fixture."""
    return eventually
