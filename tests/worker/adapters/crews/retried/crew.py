"""Guardrails that object once, one of them in words; JSON for the output; tasks of one name."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/retried/v1"

from crewai import Agent, Crew, Task
from pydantic import BaseModel


class Facts(BaseModel):
    title: str
    score: int


def twice(output):
    said.append(output.raw)
    return (True, output) if len(said) > 1 else (False, "say it again")


said: list[str] = []
agent = Agent(role="R", goal="g {x}", backstory="b")
crew = Crew(
    agents=[agent],
    tasks=[
        Task(name="same", description="one {x}", expected_output="e", agent=agent, guardrail=twice),
        Task(name="same", description="two", expected_output="e", agent=agent, guardrail="is about owls"),
        Task(name="facts", description="three", expected_output="e", agent=agent, output_json=Facts, context=[]),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
