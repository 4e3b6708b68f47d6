import asyncio

from pydantic import BaseModel, Field
from strands import Agent
from strands.models.openai import OpenAIModel


class PersonInfo(BaseModel):
    """Model that contains information about a Person"""

    name: str = Field(description="Name of the person")
    age: int = Field(description="Age of the person")


agent = Agent(model=OpenAIModel(model_id="gpt-4o"), callback_handler=None)


async def main():
    result = await agent.invoke_async("John Smith is 30 years old", structured_output_model=PersonInfo)
    print(result.structured_output)
    async for event in agent.stream_async("Tell me more."):
        if "data" in event:
            print(event["data"], end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main())
