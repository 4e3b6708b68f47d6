"""An agent that tells its model the results of concurrent tools in the order in which they ended is killed."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import asyncio, os, signal
    from pathlib import Path

    DIED = Path({died!r})

    async def agent(ctx):
        import openai
        told = asyncio.Event()

        async def slow() -> str:
            await told.wait()  # it ends when the agent has the result of the other one
            return "slow"

        async def quick() -> str:
            return "quick"

        results = []
        async def use(tool):
            results.append(await ctx.tool(tool)())
            told.set()

        async with openai.AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0, timeout=60) as client:
            async def ask():
                text = " ".join(results)
                messages = [{{"role": "user", "content": text}}]
                answer = await client.chat.completions.create(model="gpt-4o", messages=messages)
                results.append(answer.choices[0].message.content)

            results.append("go")
            await ask()
            await asyncio.gather(use(slow), use(quick))
            await ask()
            if not DIED.exists():
                DIED.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            await ask()
        return " ".join(results)

    crew = Crew(tasks=[Task(name="a", run=lambda ctx: asyncio.run(agent(ctx)))])
"""


@pytest.mark.timeout(120)
def test_a_kill_changes_no_request_of_an_agent(
    crew_of: Callable[[str], Path], fleet: Any, client: Client, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    with ModelServer(lambda request: f"({len(request.last)})") as server:
        result = client.submit(crew_of(CREW.format(died=str(tmp_path / "died"), url=server.url))).wait(100)
        asked = Counter(request.last for request in server.log)
    assert (result.status, result.recoveries) == ("completed", 1), (result, fleet.log())
    needed = ["go", "go (2) quick slow", "go (2) quick slow (17)"]
    assert result.outputs == {"a": "go (2) quick slow (17) (22)"}
    assert asked == Counter(needed)
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (len(needed) + 2, 0)  # with two uses of tools
