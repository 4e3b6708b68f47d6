import asyncio

from pydantic_ai import Agent

agent = Agent("anthropic:claude-sonnet-4-5")


async def main():
    async with agent.run_stream("Show me a short example of using Pydantic.") as result:
        async for message in result.stream_text(delta=True):
            print(message, end="", flush=True)
    print()


asyncio.run(main())
