"""Histories of several workers on one store in memory, each from a seed: what `ops/simulate` does, on little."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from runner.providers.memory.state import Memory, Place, Task

SIMULATE = Path(__file__).parents[3] / "ops" / "simulate"


imported: dict[str, ModuleType] = {}  #: the modules that simulate


@pytest.fixture(scope="module")
def world() -> Iterator[ModuleType]:
    """The module that simulates: the same one whenever these tests go on, as code that the process keeps knows it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SIMULATE)
        sys.modules.update(imported)
        import world

        imported.update({name: sys.modules[name] for name in ("world", "account", "actors", "simulated")})
    yield world
    for name in imported:
        del sys.modules[name]


def test_the_laws_hold_in_a_history_of_each_crew(world: ModuleType, tmp_path: Path) -> None:
    crews = set[str]()
    for seed in (0, 1, 2, 5):
        history = world.World(seed, tmp_path)
        history.run()
        crews.add(history.crew)
    assert crews == {path.name for path in world.CREWS.iterdir()}


@pytest.mark.slow
def test_the_laws_hold_in_a_hundred_histories(world: ModuleType, tmp_path: Path) -> None:
    for seed in range(100):
        world.World(seed, tmp_path).run()


@pytest.mark.slow
def test_a_seed_gives_the_same_history_again(world: ModuleType, tmp_path: Path) -> None:
    for seed in range(2):
        first, second = world.World(seed, tmp_path), world.World(seed, tmp_path)
        first.run()
        second.run()
        assert first.trace == second.trace
        assert first.account.paid == second.account.paid


@pytest.mark.slow
def test_executors_that_are_gone_have_no_open_files(world: ModuleType, tmp_path: Path) -> None:
    """A worker that failed inside the runner goes on with another executor, as often as it must."""

    def opened() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    for seed in range(3):
        world.World(seed, tmp_path).run()
    assert opened() == before


@pytest.mark.slow
def test_a_store_that_breaks_a_law_is_found_out(
    world: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lost the claim may write all the same."""

    def held(memory: Memory, place: Place, token: int) -> Task | None:
        task = memory.task(*place)
        return task if task is not None and task.token else None

    monkeypatch.setattr(Memory, "held", held)

    def histories() -> None:
        for seed in range(100):
            world.World(seed, tmp_path).run()

    with pytest.raises(world.Wrong, match=r"^seed \d+"):
        histories()
