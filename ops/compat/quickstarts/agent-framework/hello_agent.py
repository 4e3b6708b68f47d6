import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

agent = Agent(client=OpenAIChatClient(model="gpt-4o-mini"), name="HelloAgent", instructions="You are friendly.")


async def main() -> None:
    result = await agent.run("What is the capital of France?")
    print(f"Agent: {result}")


if __name__ == "__main__":
    asyncio.run(main())
