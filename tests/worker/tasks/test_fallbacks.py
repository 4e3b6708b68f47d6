"""An agent whose model refused it goes on with another one, and is killed: it does not ask the first one again."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, ModelServer

CREW = """
    import asyncio, os, signal
    from pathlib import Path

    DIED = Path({died!r})
    NOBODY = "http://127.0.0.1:9/v1"

    async def agent(ctx):
        import openai

        def client(url):
            return openai.AsyncOpenAI(base_url=url, api_key="sk-secret", max_retries=1, timeout=20)

        async with client({url!r}) as there, client(NOBODY) as nowhere:
            async def ask(text, model="gpt-4o", by=there):
                messages = [{{"role": "user", "content": text}}]
                said = await by.chat.completions.create(model=model, messages=messages)
                return said.choices[0].message.content

            async def ask_one_of_two(text, by=there):
                try:
                    return await ask(text, "gpt-5", by)
                except (openai.APIStatusError, openai.APIConnectionError) as error:
                    return await ask(f"{{text}}: {{type(error).__name__}}")

            results = list(await asyncio.gather(*(ask_one_of_two(text) for text in ("one", "two"))))
            results.append(await ask_one_of_two("three", nowhere))
            results.append(await ask("again", "gpt-5"))
            if not DIED.exists():
                DIED.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            results.append(await ask(" ".join(results)))
        return results[-1]

    crew = Crew(tasks=[Task(name="a", run=lambda ctx: asyncio.run(agent(ctx)))])
"""


@pytest.mark.timeout(120)
def test_a_kill_makes_no_call_again_that_was_refused(
    crew_of: Callable[[str], Path], fleet: Any, client: Client, tmp_path: Path
) -> None:
    died = tmp_path / "died"

    def answer(request: Any) -> Any:
        is_first = sum(one.last == request.last for one in server.log) == 1
        if request.model == "gpt-5" and not died.exists() and (is_first or request.last != "again"):
            return Answer("it is busy", status=429)
        return f"({request.last})"

    fleet.start("--concurrency", "1")
    with ModelServer(answer) as server:
        result = client.submit(crew_of(CREW.format(died=str(died), url=server.url))).wait(100)
        asked = Counter(request.last for request in server.log)
    assert (result.status, result.recoveries) == ("completed", 1), (result, fleet.log())
    names = ["one: RateLimitError", "two: RateLimitError", "three: APIConnectionError"]
    text = " ".join(f"({name})" for name in (*names, "again"))
    assert result.outputs == {"a": f"({text})"}
    assert asked == Counter(["one", "one", "two", "two", "again", "again", *names, text])
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (5, 0)
