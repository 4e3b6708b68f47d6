"""A decorated function of which a framework made a tool of another name is in the account with that tool."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from runner import Crew, Task, durable
from runner.journal.journal import Journal


@durable
def look(i: int) -> int:
    """Looks."""
    return i


@durable
async def alook(i: int) -> int:
    """Looks."""
    return i


async def helped(i: int) -> int:
    """Looks by another function."""
    return look(i)


def _openai(fn: Any) -> Callable[[], Any]:
    agents, tools = import_module("agents"), import_module("agents.tool")
    tool, given = agents.function_tool(fn, name_override="search"), '{"i": 1}'
    context = import_module("agents.tool_context").ToolContext
    return lambda: tools._invoke_function_tool_with_metadata(
        function_tool=tool,
        context=context(context=None, tool_name="search", tool_call_id="1", tool_arguments=given),
        arguments=given,
    )


def _pydantic_ai(fn: Any) -> Callable[[], Any]:
    pydantic_ai, models = import_module("pydantic_ai"), import_module("pydantic_ai.models.test")
    agent = pydantic_ai.Agent(models.TestModel(), tools=[pydantic_ai.Tool(fn, name="search")])
    return lambda: agent.run("Look.")


def _langchain(fn: Any) -> Callable[[], Any]:
    tool = import_module("langchain_core.tools").tool("search")(fn)
    return lambda: tool.ainvoke({"i": 1})


def _langchain_both(fn: Any) -> Callable[[], Any]:
    """The tool has a function, which it does not call: it has a coroutine, too."""
    made = import_module("langchain_core.tools").StructuredTool
    tool = made.from_function(func=look, coroutine=fn, name="search", description="Looks.")
    return lambda: tool.ainvoke({"i": 1})


def _langchain_class(fn: Any) -> Callable[[], Any]:
    body = {"__module__": __name__, "__annotations__": {"name": str, "description": str}}
    fields = {"name": "search", "description": "Looks."}

    @durable
    def _run(self: Any, i: int) -> Any:
        return fn(i)

    made = type("Search", (import_module("langchain_core.tools").BaseTool,), {**body, **fields, "_run": _run})
    return lambda: made().ainvoke({"i": 1})


@pytest.mark.parametrize(
    ("framework", "make", "fn", "steps"),
    [
        ("openai_agents", _openai, look, []),
        ("openai_agents", _openai, alook, []),
        ("openai_agents", _openai, helped, ["tool look"]),
        ("pydantic_ai", _pydantic_ai, look, []),
        ("pydantic_ai", _pydantic_ai, alook, []),
        ("pydantic_ai", _pydantic_ai, helped, ["tool look"]),
        ("langgraph", _langchain, look, []),
        ("langgraph", _langchain, alook, []),
        ("langgraph", _langchain, helped, ["tool look"]),
        ("langgraph", _langchain_both, alook, []),
        ("langgraph", _langchain_both, helped, ["tool look"]),
        ("langgraph", _langchain_class, look, ["tool look"]),
    ],
)
def test_one_use_of_a_tool_is_one_in_the_account_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch, framework: str, make: Any, fn: Any, steps: list[str]
) -> None:
    # Given a tool named otherwise than its function, or one whose function calls another
    import_module(f"runner.adapters.frameworks.{framework}").FRAMEWORK.record_uses()
    use, counted, step = make(fn), list[str](), Journal.step

    def counting(self: Journal, named: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("counted", True) and kwargs.get("kind") == "tool":
            counted.append(named)
        return step(self, named, *args, **kwargs)

    monkeypatch.setattr(Journal, "step", counting)
    # When a task uses it
    Crew(tasks=[Task(name="a", run=lambda _: str(asyncio.run(use())))]).kickoff()
    # Then that is one use, and what its code calls is another
    assert counted == ["tool search", *steps]
