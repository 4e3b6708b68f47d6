import asyncio

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team

english_agent = Agent(name="English Agent", role="You only answer in English", model=OpenAIChat(id="gpt-4o"))
german_agent = Agent(name="German Agent", role="You only answer in German", model=OpenAIChat(id="gpt-4o"))

multi_language_team = Team(
    name="Multi Language Team",
    model=OpenAIChat(id="gpt-4o"),
    members=[english_agent, german_agent],
    instructions=["You are a language router that directs questions to the appropriate language agent."],
    markdown=True,
    show_members_responses=True,
)

if __name__ == "__main__":
    asyncio.run(multi_language_team.aprint_response("How are you?", stream=True))
