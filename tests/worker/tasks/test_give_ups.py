"""An agent that gives up calls and tools is killed: they are given up again, whoever would be the faster one now."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer, eventually

CREW = """
    import asyncio, os, signal
    from pathlib import Path

    DIED = Path({died!r})

    async def search() -> str:
        trace("search")
        await asyncio.sleep(0 if DIED.exists() else 60)
        return "found"

    async def agent(ctx):
        import openai

        async with openai.AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0, timeout=60) as client:
            async def ask(text, **options):
                messages = [{{"role": "user", "content": text}}]
                completions = client.with_options(**options).chat.completions
                return (await completions.create(model="gpt-4o", messages=messages)).choices[0].message.content

            # the slower of two is cancelled
            calls = [asyncio.create_task(ask(name)) for name in ("slow", "quick")]
            done, rest = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for one in rest:
                one.cancel()
            results = [one.result() for one in done]
            # its client does not wait any longer, and asks once more
            results.append(await ask("late", timeout=1.0, max_retries=1))
            try:
                results.append(await ask("never", timeout=0.5))
            except openai.APITimeoutError as error:
                results.append(str(error))
            # a tool has its time
            try:
                results.append(await asyncio.wait_for(ctx.tool(search)(), 0.5))
            except TimeoutError:
                results.append("no search")
            results.append(await ask(" ".join(results)))
            if not DIED.exists():
                DIED.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            results.append(await ask(" ".join(results)))
        return results[-1]

    crew = Crew(tasks=[Task(name="a", run=lambda ctx: asyncio.run(agent(ctx)))])
"""


@pytest.mark.timeout(120)
def test_a_kill_makes_nothing_again_that_was_given_up(
    crew_of: Callable[[str], Path], fleet: Any, client: Client, tmp_path: Path, trace: Any
) -> None:
    over, died = threading.Event(), tmp_path / "died"

    def answer(request: Any) -> str:
        asked = [one.last for one in server.log]
        is_first = asked.count(request.last) == 1
        if not died.exists() and is_first and request.last in ("slow", "late", "never"):
            over.wait(60)
        if request.last == "quick":
            eventually(lambda: "slow" in [one.last for one in server.log], within=60, why="both are asked")
        return f"({request.last})"

    fleet.start("--concurrency", "1")
    with ModelServer(answer) as server:
        result = client.submit(crew_of(CREW.format(died=str(died), url=server.url))).wait(100)
        asked = Counter(request.last for request in server.log)
        over.set()
    assert (result.status, result.recoveries) == ("completed", 1), (result, fleet.log())
    text = "(quick) (late) Request timed out. no search"
    assert result.outputs == {"a": f"({text} ({text}))"}
    assert asked == Counter(["slow", "quick", "late", "late", "never", text, f"{text} ({text})"])
    assert trace.lines() == ["search"]
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (4, 3 + 1)  # with a use of a tool
