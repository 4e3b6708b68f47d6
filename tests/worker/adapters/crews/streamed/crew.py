"""Answers that come in pieces or in a form, of two vendors where the crew's interpreter has the other one's client."""

import importlib.util
import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/streamed/v1"
os.environ["ANTHROPIC_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/streamed"

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel


class Facts(BaseModel):
    title: str
    score: int


@tool("look")
def look(n: int) -> str:
    """Looks."""
    return f"seen {n}"


models = {"Streamer": LLM("gpt-4o-mini", stream=True), "Former": LLM("gpt-4o-mini", response_format=Facts)}
if importlib.util.find_spec("anthropic"):
    models |= {name: LLM("anthropic/claude-sonnet-4-5", stream=stream) for name, stream in (("C", True), ("D", False))}
staff = [
    Agent(role=name, goal="g", backstory="b", llm=llm, tools=[look] if name != "Former" else [])
    for name, llm in models.items()
]
crew = Crew(
    agents=staff,
    tasks=[
        *(
            Task(
                name=agent.role,
                description=f"as {agent.role} {{x}} USE look n=1; look n=2 & look n=3 END",
                expected_output="e",
                agent=agent,
            )
            for agent in staff
        ),
        Task(
            name="form", description="as JSON", expected_output="e", agent=staff[-1], output_pydantic=Facts, context=[]
        ),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
