"""The code of runs on a worker: loaded once, the newest few kept, and what is damaged or not signed refused."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.bundles import signing
from runner.core.errors import BundleDamaged, DiskTrouble, Unsigned
from runner.engine.code_cache import AttemptFolder, CodeCache, Signatures
from runner.testing.in_process import Prepared, prepare

CREW = "from runner import Crew, Task\n\ncrew = Crew(tasks=[Task(name={!r}, run=lambda ctx: 'done')])\n"


class Store:
    """Where the bundles come from; it counts."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.dropped: list[tuple[str, bytes]] = []
        self.away = False

    def bundle(self, sha: str) -> bytes:
        if self.away:
            raise ConnectionError("the store is away")
        self.fetched.append(sha)
        return self.held[sha]

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        self.dropped.append((sha, damaged))
        return True


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def submitted(tmp_path: Path, store: Store) -> Callable[[str], Prepared]:
    def submit(name: str) -> Prepared:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "crew.py").write_text(CREW.format(name))
        found = prepare(folder / "crew.py")
        store.held[found.bundle.sha256] = found.bundle.data
        return found

    return submit


def load(cache: CodeCache, crew: Prepared) -> Any:
    return cache.get(crew.bundle.sha256, "crew", "crew", "crew")


def test_a_crew_is_fetched_and_loaded_once(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crew = CodeCache(store, tmp_path / "cache"), submitted("a")
    found = load(cache, crew)
    assert [task.key for task in found.plan.tasks] == ["a"]
    assert load(cache, crew) is found
    assert cache.root(crew.bundle.sha256) == tmp_path / "cache/bundles" / crew.bundle.sha256
    assert store.fetched == [crew.bundle.sha256]


def test_of_the_loaded_only_the_newest_are_kept(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crews = CodeCache(store, tmp_path / "cache", size=2), [submitted(name) for name in "abc"]
    first, second, _ = (load(cache, crew) for crew in crews)
    assert load(cache, crews[1]) is second
    assert load(cache, crews[0]) is not first
    assert len(store.fetched) == 3, "on the disk it is there still"


def test_what_is_needed_now_is_held_however_little_is_kept(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crews = CodeCache(store, tmp_path / "cache", size=0), [submitted(name) for name in "ab"]
    for crew in crews:
        root = cache.root(crew.bundle.sha256)
        assert root.is_dir()
        assert list(cache._held) == [crew.bundle.sha256]


def test_a_process_has_open_files_for_those_it_keeps_and_none_for_a_cache_that_is_gone(
    tmp_path: Path, store: Store, submitted: Any
) -> None:
    def opened() -> int:
        """How many folders of bundles this process holds."""
        handles = Path("/proc/self/fd").iterdir()
        return sum(os.path.realpath(one).startswith(f"{tmp_path}/cache/bundles/") for one in handles)

    cache, crews = CodeCache(store, tmp_path / "cache", size=3), [submitted(f"c{number}") for number in range(6)]
    for crew in (*crews, *crews):
        load(cache, crew)
        assert opened() <= 3
    assert opened() == 3
    del cache
    assert opened() == 0


def test_a_damaged_bundle_is_dropped_and_named(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crew = CodeCache(store, tmp_path / "cache"), submitted("a")
    sha, store.held[crew.bundle.sha256] = crew.bundle.sha256, b"damaged"
    with pytest.raises(BundleDamaged):
        load(cache, crew)
    assert store.dropped == [(sha, b"damaged")]


def test_a_store_that_is_away_is_no_trouble_of_the_disks(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crew = CodeCache(store, tmp_path / "cache"), submitted("a")
    store.away = True
    with pytest.raises(ConnectionError, match="the store is away"):
        load(cache, crew)
    store.away = False
    (tmp_path / "cache").write_text("a file where the folder would be")
    with pytest.raises(DiskTrouble, match="this machine's disk refused what the task needs"):
        load(cache, crew)


def test_many_threads_have_one_folder(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crew = CodeCache(store, tmp_path / "cache"), submitted("a")
    roots: list[Path] = []
    threads = [threading.Thread(target=lambda: roots.append(cache.root(crew.bundle.sha256))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(roots) == 4
    assert len(set(roots)) == 1


def test_where_there_is_a_key_only_signed_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    code = ("sha", "crew", "crew", "native")

    def of(run: str) -> str:
        asked.append(run)
        return signature

    signature = ""
    monkeypatch.delenv(signing.VARIABLE, raising=False)
    Signatures(of).check("r-1", *code)
    assert asked == []
    monkeypatch.setenv(signing.VARIABLE, "correct horse battery")
    signatures = Signatures(of)
    with pytest.raises(Unsigned, match="`runner resume r-1 --accept-code-change`"):
        signatures.check("r-1", *code)
    signature = signing.sign(*code)
    signatures.check("r-1", *code)
    signatures.check("r-2", *code)
    assert asked == ["r-1", "r-1"], "one round trip for each code"


def test_the_newest_few_crews_are_kept(tmp_path: Path, store: Store) -> None:
    (tmp_path / "crew.py").write_text(CREW.format("one") + CREW.format("two").replace("\ncrew =", "\nother ="))
    sha = (found := prepare(f"{tmp_path / 'crew.py'}:crew")).bundle.sha256
    store.held[sha] = found.bundle.data
    cache = CodeCache(store, tmp_path / "cache", size=1)
    first = cache.get(sha, "crew", "crew", "crew")
    assert cache.get(sha, "crew", "crew", "crew") is first
    other = cache.get(sha, "crew", "other", "crew")
    assert cache.get(sha, "crew", "other", "crew") is other
    assert cache.get(sha, "crew", "crew", "crew") is not first
    assert store.fetched == [sha]


def test_a_crew_that_is_made_with_inputs_is_of_its_run_alone(tmp_path: Path, store: Store) -> None:
    (tmp_path / "crew.py").write_text(
        "from runner import Crew, Task\n\n\n"
        "class About:\n"
        "    def __init__(self, topic):\n        self.topic = topic\n\n"
        "    def crew(self):\n        return Crew(tasks=[Task(name=self.topic, run=lambda ctx: 'done')])\n"
    )
    packed = prepare(f"{tmp_path / 'crew.py'}:About.crew", {"topic": "owls"}).bundle
    store.held[packed.sha256] = packed.data
    cache = CodeCache(store, tmp_path / "cache")
    found = [cache.get(packed.sha256, "crew", "About.crew", "crew", {"topic": topic}) for topic in ("owls", "bats")]
    assert [[task.key for task in one.plan.tasks] for one in found] == [["owls"], ["bats"]]
    assert [one.made_with for one in found] == [{"topic"}, {"topic"}]


def test_a_crew_that_was_read_in_a_copy_is_good_for_one_task(tmp_path: Path, store: Store, submitted: Any) -> None:
    cache, crew = CodeCache(store, tmp_path / "cache"), submitted("a")
    copied = [cache.get(crew.bundle.sha256, "crew", "crew", "crew", root=tmp_path / "a") for _ in range(2)]
    found = [*copied, load(cache, crew)]
    assert len({id(one.crew) for one in found}) == 3
    assert [[task.key for task in one.plan.tasks] for one in found] == [["a"]] * 3


@pytest.fixture
def attempt_folder(tmp_path: Path) -> AttemptFolder:
    claim: Any = SimpleNamespace(adapter="native", job=SimpleNamespace(task="write"))
    return AttemptFolder(claim, Any, Any, lambda: Any)


def loaded(wanted: dict[str, str]) -> Any:
    return SimpleNamespace(crew=None, adapter=SimpleNamespace(output_files=lambda _: wanted))


def test_an_output_without_files_is_stored_as_it_is(attempt_folder: AttemptFolder) -> None:
    assert attempt_folder.left() == {}
    assert attempt_folder.with_files('{"raw": "a"}', {}, loaded({}), dict) == '{"raw": "a"}'


@pytest.mark.parametrize("wanted", [{}, {"other": "x.txt"}, {"write": "{topic}.txt"}])
def test_the_output_file_is_kept_with_the_files_that_a_task_left(
    attempt_folder: AttemptFolder, wanted: dict[str, str]
) -> None:
    output = attempt_folder.with_files('{"raw": "text"}', {"a.txt": "1"}, loaded(wanted), lambda: {"topic": "owls"})
    names = {"a.txt", "owls.txt"} if "write" in wanted else {"a.txt"}
    record = json.loads(output)
    assert record["raw"] == "text"
    assert all(name in output for name in names)
    assert ("owls.txt" in output) == ("write" in wanted)


def test_files_that_may_not_be_kept_are_told_in_one_line(attempt_folder: AttemptFolder) -> None:
    assert attempt_folder.not_kept() == ""
    work: Any = SimpleNamespace(made=False, not_kept=dict)
    attempt_folder._work = work
    assert attempt_folder.not_kept() == ""
    work.made = True
    assert attempt_folder.not_kept() == ""
    work.not_kept = lambda: {"too large": ["a", "b"], "no regular files": ["c"]}
    assert attempt_folder.not_kept() == "not kept, too large: a, b; no regular files: c"


def test_a_folder_is_released_whatever_else_raises(attempt_folder: AttemptFolder) -> None:
    done: list[str] = []
    attempt_folder._work = cast(Any, SimpleNamespace(remove=lambda: done.append("removed")))
    attempt_folder._ends = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        attempt_folder.leave()
    assert done == ["removed"]
