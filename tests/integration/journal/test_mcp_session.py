"""Uses of the tools of MCP servers as steps, by whichever library they are made."""

import asyncio
from typing import Any

import pytest

from runner import Crew, Task
from runner.journal.journal import Journal
from runner.journal.tool_uses import Use, recorded

from ...support.later import Later

mcp = Later("mcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def served() -> tuple[Any, list[int]]:
    """A server in this process, and what its tool was used for."""
    from mcp.server.mcpserver import MCPServer

    server, uses = MCPServer("digging", log_level="CRITICAL"), []

    @server.tool()
    def look(i: int) -> str:
        """Looks at a thing."""
        uses.append(i)
        if i < 0:
            raise ValueError("there is no such thing")
        return f"part {i}"

    return server, uses


def test_a_recorded_use_is_not_made_again_and_what_it_gave_is_the_same() -> None:
    # Given a task that uses a tool three times, and then fails
    server, uses = served()
    given: list[Any] = []

    async def use() -> list[Any]:
        async with mcp.Client(server) as client:
            return [await client.call_tool("look", {"i": i}) for i in (1, 1, -1)]

    def run(ctx: Any) -> str:
        given.append(asyncio.run(use()))
        if len(given) == 1:
            raise RuntimeError("once more")
        return "done"

    # When it is done again
    Crew(tasks=[Task(name="a", run=run, max_retries=1, retry_delay=0)]).kickoff()
    # Then the tool was used three times in all
    assert uses == [1, 1, -1]
    assert given[1] == given[0]
    assert [one.is_error for one in given[1]] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "arguments", "steps"),
    [
        ("Look", 1, []),
        ("Digging-Look", {"i": 1}, []),
        ("digging_look", [[], {"i": 1}], []),
        ("digging__look", '{"i":1}', []),
        ("digging_look", {"i": 2}, ["tool look"]),  # a tool of its own that ends so, and uses it
        ("onlook", {"i": 1}, ["tool look"]),
        ("look_up", {"i": 1}, ["tool look"]),
        ("search", {"i": 1}, ["tool look"]),
    ],
)
def test_one_that_is_made_for_a_use_of_the_same_tool_is_one_step_with_it(
    name: str, arguments: Any, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, uses = served()
    counted: list[str] = []
    step = Journal.step

    def counting(self: Journal, named: str, *args: Any, **kwargs: Any) -> Any:
        counted.append(named)
        return step(self, named, *args, **kwargs)

    async def use(_: Any) -> Any:
        async with mcp.Client(server) as client:
            return (await client.call_tool("look", {"i": 1})).content[0].text

    tool = recorded(use, lambda given: Use(name, given))
    monkeypatch.setattr(Journal, "step", counting)
    crew = Crew(tasks=[Task(name="a", run=lambda _: asyncio.run(tool(arguments)))])
    assert crew.kickoff().raw == "part 1"
    assert (counted, uses) == ([f"tool {name}", *steps], [1])
