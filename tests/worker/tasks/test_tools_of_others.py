"""Functions that are handed to agents of other frameworks: with ``ctx.tool`` each call of them is made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

CREW = """
    import asyncio, inspect, os, signal
    from pathlib import Path

    LOG = Path({log!r})

    def mail(to: str, *, text: str = "") -> str:
        "Sends a mail."
        with LOG.open("a") as out:
            out.write(f"mail {{to}} {{text}}" + chr(10))
        return f"sent to {{to}}"

    async def note(line: str) -> str:
        "Notes a line."
        return mail(line, text="noted")

    def agent(tools):
        assert [(one.__name__, one.__doc__) for one in tools] == [("mail", "Sends a mail."), ("note", "Notes a line.")]
        assert str(inspect.signature(tools[0])) == "(to: str, *, text: str = '') -> str"
        assert inspect.iscoroutinefunction(tools[1])
        said = [tools[0]("you", text="hello"), tools[0]("you", text="hello"), asyncio.run(tools[1]("me"))]
        flag = LOG.with_name("died")
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ", ".join(said)

    def run(ctx):
        return agent([ctx.tool(mail), ctx.tool(note)])

    crew = Crew(tasks=[Task(name="a", run=run)])
"""


@pytest.mark.timeout(120)
def test_what_a_tool_did_is_not_done_again(
    crew_of: Callable[[str], Path], fleet: Any, client: Client, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1")
    result = client.submit(crew_of(CREW.format(log=str(tmp_path / "log")))).wait(100)
    assert (result.status, result.recoveries) == ("completed", 1), result
    assert result.outputs == {"a": "sent to you, sent to you, sent to me"}
    assert (tmp_path / "log").read_text().splitlines() == ["mail you hello", "mail you hello", "mail me noted"]
