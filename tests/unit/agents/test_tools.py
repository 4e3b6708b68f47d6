"""Tools: what models are told of them, and what comes of what models give."""

import asyncio
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from runner import BaseTool, tool
from runner.agents.tools import (
    BadArguments,
    Tool,
    arguments_of,
    as_tool,
    as_tools,
    idempotency_key,
    schema_of,
    tool_name,
)
from runner.core.errors import BadCrew
from runner.core.idempotency import keyed


@tool
def search(query: str, limit: Annotated[int, Field(description="how many")] = 3) -> list[str]:
    """Search the archive.

    Give it words.
    """
    return [query] * limit


class Page(BaseModel):
    number: int


class Read(BaseTool):
    name: str = "Read a page"
    description: str = "Reads one."
    args_schema: type[BaseModel] = Page

    def _run(self, number: int) -> str:
        return f"page {number}"


def test_what_a_model_is_told():
    assert schema_of(search, "search") == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the archive.\n\nGive it words.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "default": 3, "description": "how many"},
                },
                "required": ["query"],
            },
        },
    }
    assert schema_of(Read(), "read_a_page")["function"]["parameters"]["required"] == ["number"]


def test_tools_can_be_used_as_they_are():
    assert search.run(query="a", limit="2") == ["a", "a"], "what a model gives is made what the function takes"
    assert search("a", 1) == search.run("a", 1) == ["a"]
    assert Read().run(number=2) == "page 2"

    @tool("Slow one", result_as_answer=True)
    async def slow(x: int = 1) -> int:
        """Slow."""
        return x

    assert (slow.name, slow.result_as_answer, slow.run(), asyncio.run(slow.arun(x=2))) == ("Slow one", True, 1, 2)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"query": ', "the arguments are not JSON: Expecting value"),
        ("[1]", "the arguments must be a JSON object"),
        ("{}", "the arguments do not fit: query: Field required"),
        ('{"query": "a", "limit": "many"}', "limit: Input should be a valid integer"),
    ],
)
def test_arguments_that_do_not_fit_are_said_in_a_line(given, why):
    with pytest.raises(BadArguments, match=why):
        arguments_of(search, given)


def test_arguments_of_odd_functions():
    @tool
    def none() -> str:
        """Nothing."""
        return "x"

    @tool
    def anything(**given: int) -> int:
        """All."""
        return sum(given.values())

    assert arguments_of(none, "") == arguments_of(none, '{"made": "up"}') == {}
    assert anything.run(**arguments_of(anything, '{"a": 1, "b": 2}')) == 3
    with pytest.raises(ValueError, match=r"the argument '_x' of the tool 'hidden' cannot be given by name"):

        @tool
        def hidden(_x: int) -> None:
            """No."""

    with pytest.raises(ValueError, match="the tool 'mute' needs a docstring"):

        @tool
        def mute() -> None: ...


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("search", "search"),
        ("Delegate work to coworker", "delegate_work_to_coworker"),
        ("ReadFileTool", "read_file_tool"),
        ("Suche für Bücher!", "suche_fur_bucher"),
        ("?", "tool"),
        ("x" * 80, "x" * 64),
    ],
)
def test_names_as_models_take_them(name, told):
    assert tool_name(name) == told


def test_what_people_give_as_tools():
    def plain(a: int) -> int:
        """Adds one."""
        return a + 1

    class Foreign:
        name, description, args_schema = "Foreign", "Of another library.", Page

        def invoke(self, given: dict[str, int]) -> int:
            return given["number"]

    tools = as_tools([search, plain, Foreign(), search])
    assert list(tools) == ["search", "plain", "foreign"]
    assert isinstance(tools["foreign"], Tool)
    assert (tools["plain"].run(a=1), tools["foreign"].run(number=3)) == (2, 3)
    with pytest.raises(BadCrew, match="5 is not a tool: give a function with @tool"):
        as_tool(5)
    with pytest.raises(BadCrew, match="two tools are called 'search'"):
        as_tools([search, tool("Search")(plain)])
    with pytest.raises(BadCrew, match="the tool '<lambda>' needs a docstring"):
        as_tool(lambda: 1)


def test_the_key_of_a_use():
    assert idempotency_key() != idempotency_key(), "outside of any use, another one each time"
    with keyed("r:t:1"):
        assert idempotency_key() == "r:t:1"
