import asyncio

from agents import Agent, Runner, SQLiteSession

agent = Agent(name="Assistant", instructions="Reply very concisely.")
session = SQLiteSession("conversation_123")


async def main():
    for question in ("What city is the Golden Gate Bridge in?", "What state is it in?"):
        result = await Runner.run(agent, question, session=session)
        print(result.final_output)


asyncio.run(main())
