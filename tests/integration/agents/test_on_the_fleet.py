"""MCP servers as tools on real workers: a task that begins anew asks none for what it knows."""

import sys
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

from ...support.soak import in_soak

CREW = """
    import json
    from runner import Agent, BaseLLM, Crew, Task
    from runner.agents.mcp import MCPServerStdio

    class Model(BaseLLM):
        def supports_function_calling(self):
            return True

        def call(self, messages, tools=None, **_):
            results = [m["content"] for m in messages if m["role"] == "tool"]
            if results:
                return results[-1] + " by " + str(len(tools)) + " tools"
            call = {{"name": "add", "arguments": json.dumps({{"a": 1, "b": 2}})}}
            return [{{"id": "c", "type": "function", "function": call}}]

    server = MCPServerStdio(command={python!r}, args={words!r})
    agent = Agent(role="counter", llm=Model("mine"), mcps=[server])
    crew = Crew(tasks=[Task(name="t", description="Count.", agent=agent)])
"""


@pytest.mark.parametrize("pool", ["shared", *in_soak("prefork")])
def test_tools_of_a_server_in_a_task_whose_worker_is_killed(
    pool: str, fleet: Any, client: Client, write_crew: Any, notes: Any, tmp_path: Path, eventually: Any
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_CRASH_AT=f"step recorded, task not ended:{flag}")
    code = CREW.format(python=sys.executable, words=notes.words)
    result = client.submit(write_crew(code)).wait(60)
    assert (result.status, result.result) == ("completed", "3 by 4 tools"), result
    assert flag.exists()
    eventually(lambda: notes.lines().count("ended") == 2, why="a server ends with the worker that started it")
    assert sorted(notes.lines()) == ["add 1 2", "begun stdio", "begun stdio", "ended", "ended"]
