"""MCP servers as tools: real servers, as processes, with the official package on both sides."""

import json
import pickle
import threading
from typing import Any

import pytest

from runner import Agent, BaseLLM, Crew, Task
from runner.agents.tools import BadArguments
from runner.core.errors import BadCrew, TaskError

from ...support.later import Later

mcp = Later("runner.agents.mcp")


class Scripted(BaseLLM):
    """Answers by a list: text, or the calls of tools."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("scripted")
        self.answers = list(answers)
        self.offered: list[list[str]] = []
        self.heard: list[str] = []

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, tools: Any = None, **_: Any) -> Any:
        self.offered.append([one["function"]["name"] for one in tools or ()])
        self.heard += [m["content"] for m in messages if m["role"] == "tool"][len(self.heard) :]
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return answer
        return [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for i, (name, given) in enumerate(answer)
        ]


def test_an_agent_uses_the_tools_of_a_server_side_by_side_and_the_server_is_gone_after_the_task(notes):
    llm = Scripted(
        [
            ("add", {"a": 1, "b": 2}),
            ("add", {"a": 3, "b": 4}),
            ("refuse", {"why": "rain"}),
            ("add", {"a": "x", "b": 1}),
        ],
        "done",
    )
    server = notes.stdio(tool_filter=mcp.create_static_tool_filter(blocked_tool_names=["die"]))
    agent = Agent(role="counter", llm=llm, mcps=[server])
    assert Crew(tasks=[Task(name="t", description="Count.", agent=agent)]).kickoff().raw == "done"
    assert llm.offered[0] == ["add", "refuse", "environment"]
    assert llm.heard[:3] == ["3", "7", "Error: TaskError: Error executing tool refuse: no: rain"]
    assert "a: 'x' is not of type 'integer'" in llm.heard[3]
    assert sorted(notes.lines()) == ["add 1 2", "add 3 4", "begun stdio", "ended"]
    assert not [one for one in threading.enumerate() if one.name.startswith("mcp ")]


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_a_server_at_an_address(notes, listening, transport):
    server = listening(transport)
    with mcp.connections():
        add = next(one for one in mcp.mcp_tools(server) if one.name == "add")
        assert (add.run(a=20, b=22), add.run(a=1, b=1)) == ("42", "2")
    assert add.run(a=2, b=2) == "4", "outside of a task it has a connection of its own"
    with pytest.raises(BadArguments, match="'a' is a required property"):
        add.run(b=2)
    assert "secret" not in repr(server) + repr(add) + server.model_dump_json()


def test_one_tool_of_an_address(listening):
    url = listening("streamable-http").url
    assert [one.name for one in mcp.mcp_tools(f"{url}#add")] == ["add"]
    with pytest.raises(BadCrew, match=r"has no tool 'subtract'; there are: add, refuse, environment, die"):
        mcp.mcp_tools(f"{url}#subtract")


def test_a_server_gets_the_environment_that_it_is_given_and_no_keys_of_the_worker(notes, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = notes.stdio(env={"MINE": "x"})
    with mcp.connections():
        environment = next(one for one in mcp.mcp_tools(server) if one.name == "environment")
        assert [environment.run(name=name) for name in ("MINE", "OPENAI_API_KEY")] == ["x", "not set"]
    assert server.identity == notes.stdio(env={"MINE": "y"}).identity


def test_a_server_that_dies_is_started_again_for_the_next_call(notes):
    with mcp.connections():
        tools = {one.name: one for one in mcp.mcp_tools(notes.stdio())}
        with pytest.raises(TaskError, match="the MCP server 'forked' does not answer 'die'"):
            tools["die"].run()
        assert tools["add"].run(a=1, b=1) == "2"
    assert notes.lines().count("begun stdio") == 2


def test_a_function_of_a_task_keeps_its_connection_until_the_task_ends(notes):
    server = notes.stdio()

    def count(ctx):
        add = next(one for one in mcp.mcp_tools(server) if one.name == "add")
        assert (add.run(a=1, b=2), add.run(a=3, b=4)) == ("3", "7")
        assert "ended" not in notes.lines()
        return "done"

    assert Crew(tasks=[Task(name="t", run=count)]).kickoff().raw == "done"
    assert notes.lines() == ["begun stdio", "add 1 2", "add 3 4", "ended"]


def test_a_list_that_is_kept_is_asked_for_once(notes):
    for _ in range(2):
        with mcp.connections():
            assert len(mcp.mcp_tools(notes.stdio(cache_tools_list=True))) == 4
    assert notes.lines() == ["begun stdio", "ended"]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (
            lambda: mcp.MCPServerStdio(command="/nowhere/to/be/found"),
            "the MCP server 'found' gives no list of its tools: FileNotFound",
        ),
        (
            lambda: mcp.MCPServerStdio(command="sh", args=["-c", "cat > /dev/null"], timeout=0.3),
            "gives no list of its tools: TimeoutError: no answer within 0.3 s",
        ),
        (
            lambda: mcp.MCPServerHTTP(url="http://127.0.0.1:9/mcp"),
            "the MCP server '127.0.0.1' gives no list of its tools",
        ),
    ],
)
def test_a_server_that_is_not_there(server, why):
    with pytest.raises(TaskError, match=why):
        mcp.mcp_tools(server())


def test_what_is_no_server():
    with pytest.raises(BadCrew, match="'notes' is not an MCP server: give an address"):
        Agent(role="a", mcps=["notes"])
    assert mcp.servers.as_server("https://example.com/mcp#x").only == "x"
    assert pickle.loads(pickle.dumps(mcp.servers.as_server("https://example.com/mcp#x"))).only == "x"
