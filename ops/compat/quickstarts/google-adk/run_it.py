import asyncio

from google.adk.agents import Agent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

APP_NAME, USER_ID, SESSION_ID = "weather_app", "user1234", "1234"


def get_weather(city: str) -> dict:
    """Retrieves the current weather report for a specified city."""
    return {"status": "success", "report": f"The weather in {city} is sunny."}


root_agent = Agent(
    model="gemini-2.5-flash",
    name="weather_agent",
    instruction="Answer questions about the weather.",
    tools=[get_weather],
)


async def setup_session_and_runner():
    session_service = InMemorySessionService()
    session = await session_service.create_session(app_name=APP_NAME, user_id=USER_ID, session_id=SESSION_ID)
    runner = Runner(agent=root_agent, app_name=APP_NAME, session_service=session_service)
    return session, runner


async def call_agent_async(query):
    content = types.Content(role="user", parts=[types.Part(text=query)])
    _session, runner = await setup_session_and_runner()
    events = runner.run_async(user_id=USER_ID, session_id=SESSION_ID, new_message=content)

    async for event in events:
        if event.is_final_response():
            final_response = event.content.parts[0].text
            print("Agent Response: ", final_response)


if __name__ == "__main__":
    asyncio.run(call_agent_async("What is the weather in Paris?"))
