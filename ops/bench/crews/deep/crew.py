"""An agent whose conversation grows by what a tool gives it, call by call."""

from runner import Agent, Crew, Task, tool

BACKSTORY = 836_000  # characters: about 200,000 tokens, sent with each call


@tool
def fetch(part: int, size: int) -> str:
    """Fetches a part of the archive."""
    return f"part {part} " * (size // len(f"part {part} "))


digger = Agent(
    role="Digger",
    goal="Read all of the archive",
    backstory="All that is known of it. " * (BACKSTORY // 25),
    tools=[fetch],
    llm="openai/gpt-4.1",
    max_iter=10_000,
)
crew = Crew(agents=[digger], tasks=[Task(name="dig", description="Read it.", expected_output="Done", agent=digger)])
