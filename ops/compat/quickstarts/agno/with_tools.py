"""Agent with a tool, run as a script."""

from textwrap import dedent

from agno.agent import Agent, RunOutput
from agno.models.openai import OpenAIResponses
from agno.tools import tool


@tool
def get_top_hackernews_stories(num_stories: int = 10) -> str:
    """Fetch top stories from Hacker News.

    Args:
        num_stories (int): Number of stories to return. Defaults to 10.
    """
    return ", ".join(f"story {n}" for n in range(num_stories))


agent = Agent(
    model=OpenAIResponses(id="gpt-5-mini"),
    tools=[get_top_hackernews_stories],
    instructions=dedent("""\
        You are an enthusiastic news reporter.
        Use your tools."""),
)

if __name__ == "__main__":
    response: RunOutput = agent.run("Summarize the top 5 stories on hackernews?")
    print(response.content)
