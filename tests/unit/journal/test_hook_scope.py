"""What hooks change beside tool uses, or around them, is not recorded with these: hooks run again in each attempt."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from runner.journal.code_beside import runs_again
from runner.journal.tool_uses import Use, recorded

from .test_tool_context import Waits, attempts

KILLED = ["", "0", "1", "2", "slow"]


def work(around: Callable[..., Any], uses: list[str], killed: str) -> Callable[[list[str], int], None]:
    """Uses side by side that change a list, each of which a hook wraps that changes it, too; the first attempt may end
    in one of them."""

    async def use(kept: list[str], name: str) -> str:
        uses.append(name)
        kept.append(f"{name} begins")
        await asyncio.sleep(0.01 if name == "slow" else 0.001 * int(name))
        if not any(attempt_of) and name == killed:
            raise Waits
        kept.append(f"{name} ends")
        return name

    tool = recorded(use, lambda kept, name: Use("use", name, (kept,)), passing=(Waits,))
    attempt_of: list[int] = []

    async def main(kept: list[str]) -> None:
        names = ["slow", "0", "1", "2"]
        done = await asyncio.gather(*(around(tool, kept, name) for name in names), return_exceptions=True)
        if any(isinstance(one, Waits) for one in done):
            raise Waits

    def run(kept: list[str], attempt: int) -> None:
        attempt_of[:] = [attempt]
        with contextlib.suppress(Waits):
            asyncio.run(main(kept))

    return run


async def _beside(tool: Any, kept: list[str], name: str) -> None:
    _note(kept, f"{name} hook before")
    await tool(kept, name)
    await _anote(kept, f"{name} hook after")


@runs_again
def _note(kept: list[str], text: str) -> None:
    kept.append(text)


@runs_again
async def _anote(kept: list[str], text: str) -> None:
    kept.append(text)
    await asyncio.sleep(0)
    kept.append(f"{text}, later")


@runs_again
async def _around(tool: Any, kept: list[str], name: str) -> None:
    kept.append(f"{name} hook before")
    await tool(kept, name)
    kept.append(f"{name} hook between")
    await tool(kept, name)
    kept.append(f"{name} hook after")
    await asyncio.sleep(0)
    kept.append(f"{name} hook later")


@runs_again
async def _outer(tool: Any, kept: list[str], name: str) -> None:
    kept.append(f"{name} outer before")
    await _around(tool, kept, name)
    kept.append(f"{name} outer after")


@runs_again
async def _elsewhere(tool: Any, kept: list[str], name: str) -> None:
    kept.append(f"{name} hook before")
    await asyncio.create_task(tool(kept, name))
    kept.append(f"{name} hook after")


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("around", [_beside, _around, _outer, _elsewhere])
def test_what_hooks_change_is_there_once_however_they_call_the_tool(around: Callable[..., Any], killed: str) -> None:
    alone: list[str] = []
    work(around, [], "")(alone, 1)
    first, again = attempts(list, work(around, [], killed), sorted)
    assert again == sorted(alone)
    assert killed or first == again


def test_each_use_that_a_hook_makes_is_one() -> None:
    uses: list[str] = []
    attempts(list, work(_outer, uses, ""), sorted)
    assert sorted(uses) == sorted(["slow", "0", "1", "2"] * 2)
