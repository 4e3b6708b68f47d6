"""A crew and an agent with knowledge."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/knowing/v1"

from crewai import Agent, Crew, Task
from crewai.knowledge.source.string_knowledge_source import StringKnowledgeSource

owls = StringKnowledgeSource(content="Owls fly silently.")
mice = StringKnowledgeSource(content="Mice hear well.")
agent = Agent(role="R", goal="g {x}", backstory="b", knowledge_sources=[mice])
crew = Crew(
    agents=[agent],
    tasks=[Task(name=n, description=f"do {n} {{x}}", expected_output="e", agent=agent) for n in ("a", "b")],
    knowledge_sources=[owls],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
