import asyncio

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI

llm = OpenAI(model="gpt-4o-mini")


async def record_notes(ctx: Context, notes: str, notes_title: str) -> str:
    """Useful for recording notes on a given topic."""
    async with ctx.store.edit_state() as ctx_state:
        ctx_state["state"].setdefault("research_notes", {})[notes_title] = notes
    return "Notes recorded."


research_agent = FunctionAgent(
    name="ResearchAgent",
    description="Useful for searching the web and recording notes.",
    system_prompt="You are the ResearchAgent.",
    llm=llm,
    tools=[record_notes],
    can_handoff_to=["WriteAgent"],
)
write_agent = FunctionAgent(
    name="WriteAgent",
    description="Useful for writing a report on a given topic.",
    system_prompt="You are the WriteAgent.",
    llm=llm,
    tools=[],
    can_handoff_to=["ResearchAgent"],
)
agent_workflow = AgentWorkflow(
    agents=[research_agent, write_agent],
    root_agent=research_agent.name,
    initial_state={"research_notes": {}, "report_content": "Not written yet."},
)


async def main():
    handler = agent_workflow.run(user_msg="Write me a report on the history of the internet.")
    async for event in handler.stream_events():
        if type(event).__name__ == "ToolCallResult":
            print(event.tool_name, event.tool_output.content)
    print(await handler)


if __name__ == "__main__":
    asyncio.run(main())
