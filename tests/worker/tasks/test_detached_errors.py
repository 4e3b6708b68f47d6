"""A step that fails, or asks a person, in a coroutine whose end its task does not await, ends the task all the same."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

pytestmark = pytest.mark.timeout(120)

# As AutoGen has tools used: what it waits for is put into a queue, after them.
DETACHED = """
import asyncio, os
from runner import durable


@durable
async def use(name):
    with open({trace!r}, "a") as file:
        file.write(name + "\\n")
    if name == "slow":
        await asyncio.sleep(1.5)
    elif {asks}:
        return input("May I? ")
    elif not os.path.exists({trace!r} + ".mended"):
        with open("data.bin", "wb") as file:
            file.truncate(2**26)
    return name


async def main():
    queue = asyncio.Queue()

    async def give():
        queue.put_nowait(await asyncio.gather(use("fast"), use("slow")))

    giving = asyncio.create_task(give())
    print(await queue.get())


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize(("pool", "asks"), [("prefork", False), ("prefork", True), ("threads", True), ("shared", True)])
def test_a_task_ends_of_what_was_raised_where_it_does_not_look(
    pool: str, asks: bool, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a task that would wait for ever
    file, trace = tmp_path / "agent.py", tmp_path / "trace"
    file.write_text(DETACHED.format(trace=str(trace), asks=asks))
    fleet.start("--concurrency", "1", "--pool", pool)
    run = client.submit(f"{file}:__main__()")
    result = run.wait(60)
    # Then it ends all the same, once the use beside it was recorded
    assert result.status == ("waiting" if asks else "failed"), result.error
    assert "of new and changed files" in (result.error or "of new and changed files")
    Path(f"{trace}.mended").touch()
    # And when its cause is gone it goes on from there
    if asks:
        client.answer(run.id, text="yes")
    else:
        client.resume(run.id)
    result = run.wait(60)
    assert result.outputs == {"main": str(["yes" if asks else "fast", "slow"])}, result.error
    assert Counter(trace.read_text().split()) == {"fast": 2, "slow": 1}
