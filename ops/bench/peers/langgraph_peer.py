"""LangGraph with its SQLite checkpointer: a node for each step, a checkpoint after each, written before the next."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

import deep
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from stage import ready, timed

FILE = str(Path(os.environ["PEER_FOLDER"], "langgraph.sqlite"))


class Counted(TypedDict):
    done: int


class Conversation(TypedDict):
    messages: list[dict[str, Any]]


def sequential(steps: int) -> None:
    graph = StateGraph(Counted)
    graph.add_node("step", lambda state: {"done": state["done"] + 1})
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["done"] < steps else END)
    with SqliteSaver.from_conn_string(FILE) as saver:
        built = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "warm"}, "recursion_limit": steps * 2 + 10}
        built.invoke({"done": steps - 2}, config, durability="sync")
        config["configurable"]["thread_id"] = "timed"
        timed(lambda: built.invoke({"done": 0}, config, durability="sync"))


def waiting(agents: int) -> None:
    openai = deep.async_client()

    async def node(state: Counted) -> Counted:
        await deep.ask_once(openai, state["done"])
        return {"done": 1}

    async def work() -> None:
        graph = StateGraph(Counted)
        graph.add_node("ask", node)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        async with AsyncSqliteSaver.from_conn_string(FILE) as saver:
            built = graph.compile(checkpointer=saver)
            one: Any = {"configurable": {"thread_id": "warm"}}
            await built.ainvoke({"done": 0}, one, durability="sync")
            ready()
            threads: list[Any] = [{"configurable": {"thread_id": str(n)}} for n in range(agents)]
            await asyncio.gather(*(built.ainvoke({"done": 0}, one, durability="sync") for one in threads))

    asyncio.run(work())


def conversation(again: bool) -> None:
    openai = deep.client()

    def ask(state: Conversation) -> Conversation:
        return {"messages": [*state["messages"], deep.ask(openai, state["messages"])]}

    def use(state: Conversation) -> Conversation:
        return {"messages": [*state["messages"], *map(deep.use, state["messages"][-1]["tool_calls"])]}

    graph = StateGraph(Conversation)
    graph.add_node("ask", ask)
    graph.add_node("use", use)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda state: "use" if state["messages"][-1].get("tool_calls") else END)
    graph.add_edge("use", "ask")
    with SqliteSaver.from_conn_string(FILE) as saver:
        built = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "deep"}, "recursion_limit": 100_000}
        timed(lambda: built.invoke(None if again else {"messages": deep.START}, config, durability="sync"))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sequential", steps]:
            sequential(int(steps))
        case ["waiting", agents]:
            waiting(int(agents))
        case ["deep", again]:
            conversation(again == "again")
