"""A crew with a memory."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/remembering/v1"

from crewai import Agent, Crew, Task

agent = Agent(role="R", goal="g {x}", backstory="b")
crew = Crew(
    agents=[agent],
    tasks=[Task(name=n, description=f"do {n} {{x}}", expected_output="e", agent=agent) for n in ("a", "b")],
    memory=True,
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
