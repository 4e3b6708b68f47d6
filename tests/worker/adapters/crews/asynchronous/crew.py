"""Two tasks side by side, one of which names its context; and one at the end."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/asynchronous/v1"

from crewai import Agent, Crew, Task

one, two = Agent(role="R", goal="g {x}", backstory="b"), Agent(role="S", goal="g", backstory="b")
first = Task(name="first", description="first {x}", expected_output="e", agent=one)
crew = Crew(
    agents=[one, two],
    tasks=[
        first,
        Task(name="alone", description="alone", expected_output="e", agent=one, async_execution=True),
        Task(name="told", description="told", expected_output="e", agent=two, async_execution=True, context=[first]),
        Task(name="joined", description="joined", expected_output="e", agent=one),
        Task(name="last", description="last", expected_output="e", agent=two, async_execution=True),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
