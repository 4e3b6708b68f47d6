"""A plan for all tasks, made before the first."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/planned/v1"

from crewai import Agent, Crew, Task

agent = Agent(role="R", goal="g {x}", backstory="b")
crew = Crew(
    agents=[agent],
    tasks=[Task(name=n, description=f"do {n} {{x}}", expected_output="e", agent=agent) for n in ("a", "b", "c")],
    planning=True,
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
