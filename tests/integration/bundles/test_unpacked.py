"""Unpacked bundles stay while they are used, and go when the room is needed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.bundles import unpacked
from runner.bundles.bundle import Bundle, pack
from runner.bundles.target import parse_target
from runner.engine.code_cache import CodeCache

CREW = "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='one', run=lambda ctx: {word!r})])\n"


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Bundle]:
    def one(word: str) -> Bundle:
        folder = tmp_path / "crews" / word
        folder.mkdir(parents=True)
        (folder / "crew.py").write_text(CREW.format(word=word))
        (folder / "data.bin").write_bytes(b"x" * 1000)
        return pack(parse_target(str(folder / "crew.py")))

    return one


def put(bundle: Bundle, cache: Path, *, used: float = 0) -> Path:
    """Unpack it; it was used so many seconds ago."""
    home, handle = unpacked.hold(bundle.sha256, cache, lambda: bundle.data)
    os.close(handle)
    os.utime(home, (time.time() - used,) * 2)
    return home


def test_those_used_longest_ago_go_when_they_take_too_much(made: Callable[[str], Bundle], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    homes = [put(made(f"w{number}"), cache, used=10 * number) for number in range(4)]
    unpacked.tidy(cache, 1e9)
    assert all(home.is_dir() for home in homes)
    unpacked.tidy(cache, 2500)  # two of 1,000 and some bytes each
    assert [home.is_dir() for home in homes] == [True, True, False, False]
    os.utime(homes[0], (1, 1))
    unpacked.tidy(cache, 1e9)
    assert [home.is_dir() for home in homes] == [False, True, False, False]
    assert sorted(cache.iterdir()) == [homes[1]]


def test_one_that_another_process_uses_stays_until_that_is_dead(made: Callable[[str], Bundle], tmp_path: Path) -> None:
    cache, bundle = tmp_path / "cache", made("used")
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        unpacked.hold(bundle.sha256, cache, lambda: bundle.data)
        os.write(ready[1], b"r")
        os.read(go[0], 1)
        os.kill(os.getpid(), 9)
    os.read(ready[0], 1)
    unpacked.tidy(cache, 0)
    assert (cache / bundle.sha256 / "crew.py").is_file()
    os.write(go[1], b"g")
    os.waitpid(pid, 0)
    unpacked.tidy(cache, 0)
    assert not list(cache.iterdir())


def test_one_that_is_taken_away_just_before_it_is_locked_is_unpacked_again(
    made: Callable[[str], Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, bundle = tmp_path / "cache", made("raced")
    put(bundle, cache)
    lock = unpacked.fcntl.flock

    def late(handle: int, how: int) -> None:
        if how == unpacked.fcntl.LOCK_SH:
            monkeypatch.setattr(unpacked.fcntl, "flock", lock)
            unpacked.tidy(cache, 0)
            assert not (cache / bundle.sha256).exists()
        lock(handle, how)

    monkeypatch.setattr(unpacked.fcntl, "flock", late)
    home, handle = unpacked.hold(bundle.sha256, cache, lambda: bundle.data)
    os.close(handle)
    assert (home / "crew.py").is_file()


def test_what_killed_processes_left_half_done_goes(made: Callable[[str], Bundle], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in (".unpack-old", ".gone-old", ".unpack-new"):
        (cache / name / "files").mkdir(parents=True)
    for name in (".unpack-old", ".gone-old"):
        os.utime(cache / name, (1, 1))
    unpacked.tidy(cache, 0)
    assert [path.name for path in cache.iterdir()] == [".unpack-new"]
    unpacked.tidy(tmp_path / "none", 0)


def test_a_process_holds_the_newest_it_has_loaded(made: Callable[[str], Bundle], tmp_path: Path) -> None:
    bundles = {bundle.sha256: bundle for bundle in map(made, "abc")}
    first, second, third = bundles

    class Source:
        def bundle(self, sha: str) -> bytes:
            return bundles[sha].data

    code = CodeCache(Source(), tmp_path, size=2)

    def there() -> set[str]:
        unpacked.tidy(tmp_path / "bundles", 0)
        return {path.name for path in (tmp_path / "bundles").iterdir()}

    for sha in (first, second):
        code.get(sha, "crew", "crew", "crew")
    assert there() == {first, second}
    code.get(first, "crew", "crew", "crew")
    code.get(third, "crew", "crew", "crew")
    assert there() == {first, third}
    code.get(second, "crew", "crew", "crew")
    assert there() == {third, second}


def test_one_that_another_worker_of_the_machine_takes_away_meanwhile(
    made: Callable[[str], Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first, second = (put(made(word), cache, used=used) for word, used in (("first", 20), ("second", 10)))
    size = unpacked._size

    def meanwhile(folder: Path, inode: int) -> int:
        found = size(folder, inode)
        if folder == first:
            assert unpacked._remove(first)
        return found

    monkeypatch.setattr(unpacked, "_size", meanwhile)
    unpacked.tidy(cache, 0)
    assert not second.exists()
