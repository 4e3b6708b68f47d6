"""Temporal's own development server with a file: a workflow, and an activity for each call."""

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

with workflow.unsafe.imports_passed_through():
    import deep
    from stage import ready

QUEUE = "peer"
SHORT = timedelta(seconds=600)
clients: dict[str, Any] = {}


@activity.defn
async def nothing() -> None:
    pass


@activity.defn
async def ask_once(n: int) -> str:
    return await deep.ask_once(clients["async"], n)


@activity.defn
async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return await asyncio.to_thread(deep.ask, clients["sync"], messages)


@activity.defn
async def use(call: dict[str, Any]) -> dict[str, Any]:
    return deep.use(call)


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, count: int) -> None:
        for _ in range(count):
            await workflow.execute_activity(nothing, start_to_close_timeout=SHORT)


@workflow.defn
class Agent:
    @workflow.run
    async def run(self, n: int) -> str:
        return await workflow.execute_activity(ask_once, n, start_to_close_timeout=SHORT)


@workflow.defn
class Conversation:
    @workflow.run
    async def run(self) -> str:
        messages = list(deep.START)
        while True:
            messages.append(
                await workflow.execute_activity(ask, messages, start_to_close_timeout=timedelta(seconds=10))
            )
            if not (uses := messages[-1].get("tool_calls")):
                return str(messages[-1]["content"])
            for call in uses:
                messages.append(await workflow.execute_activity(use, call, start_to_close_timeout=SHORT))


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL"])
    clients["async"], clients["sync"] = deep.async_client(), deep.client()
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[Steps, Agent, Conversation],
        activities=[nothing, ask_once, ask, use],
        max_concurrent_activities=10_000,
        max_concurrent_workflow_tasks=100,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        loop = asyncio.get_running_loop()
        match sys.argv[1:]:
            case ["sequential", count]:
                await client.execute_workflow(Steps.run, 2, id="warm", task_queue=QUEUE)
                await loop.run_in_executor(None, ready)
                began = loop.time()
                await client.execute_workflow(Steps.run, int(count), id="timed", task_queue=QUEUE)
                print(f'{{"seconds": {loop.time() - began}}}', flush=True)
            case ["waiting", agents]:
                await client.execute_workflow(Agent.run, -1, id="warm", task_queue=QUEUE)
                await loop.run_in_executor(None, ready)
                handles = [
                    await client.start_workflow(Agent.run, n, id=f"agent-{n}", task_queue=QUEUE)
                    for n in range(int(agents))
                ]
                await asyncio.gather(*(handle.result() for handle in handles))
            case ["deep", again]:
                await loop.run_in_executor(None, ready)
                if again != "again":
                    await client.start_workflow(Conversation.run, id="deep", task_queue=QUEUE)
                await client.get_workflow_handle("deep").result()


if __name__ == "__main__":
    asyncio.run(main())
