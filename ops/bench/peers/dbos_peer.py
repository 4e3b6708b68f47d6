"""DBOS with its default SQLite database: a workflow, and a step for each call."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import deep
from dbos import DBOS, DBOSConfig, SetWorkflowID
from stage import ready, timed

FILE = Path(os.environ["PEER_FOLDER"], "dbos.sqlite")
config: DBOSConfig = {
    "name": "peer",
    "system_database_url": f"sqlite:///{FILE}",
    "executor_id": "one",
    "application_version": "1",
    "log_level": "ERROR",
}
DBOS(config=config)
clients: dict[str, Any] = {}


@DBOS.step()
def nothing() -> None:
    pass


@DBOS.workflow()
def steps(count: int) -> None:
    for _ in range(count):
        nothing()


@DBOS.step()
async def ask_once(n: int) -> str:
    return await deep.ask_once(clients["async"], n)


@DBOS.workflow()
async def agent(n: int) -> str:
    return await ask_once(n)


@DBOS.step()
def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return deep.ask(clients["sync"], messages)


@DBOS.step()
def use(call: dict[str, Any]) -> dict[str, Any]:
    return deep.use(call)


@DBOS.workflow()
def conversation() -> str:
    messages = list(deep.START)
    while True:
        messages.append(ask(messages))
        if not (uses := messages[-1].get("tool_calls")):
            return str(messages[-1]["content"])
        messages.extend(map(use, uses))


def waiting(agents: int) -> None:
    clients["async"] = deep.async_client()

    async def work() -> None:
        handle = await DBOS.start_workflow_async(agent, -1)
        await handle.get_result()
        ready()
        handles = [await DBOS.start_workflow_async(agent, n) for n in range(agents)]
        await asyncio.gather(*(handle.get_result() for handle in handles))

    asyncio.run(work())


def talk(again: bool) -> None:
    clients["sync"] = deep.client()
    if again:  # it takes up by itself, at its launch, what its executor has not ended
        ready()
        DBOS.launch()
        DBOS.retrieve_workflow("deep").get_result()
    else:
        DBOS.launch()
        with SetWorkflowID("deep"):
            timed(conversation)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sequential", count]:
            DBOS.launch()
            steps(2)
            timed(lambda: steps(int(count)))
        case ["waiting", agents]:
            DBOS.launch()
            waiting(int(agents))
        case ["deep", again]:
            talk(again == "again")
    DBOS.destroy()
