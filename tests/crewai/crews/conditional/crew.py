"""A task that is skipped, one that is not, and one at the end that is skipped: the result is that of the one before."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/conditional/v1"

from crewai import Agent, Crew, Task
from crewai.tasks.conditional_task import ConditionalTask

agent = Agent(role="R", goal="g {x}", backstory="b")
about = {"expected_output": "e", "agent": agent}
crew = Crew(
    agents=[agent],
    tasks=[
        Task(name="one", description="one {x}", **about),
        ConditionalTask(name="skipped", description="two", condition=lambda output: False, **about),
        ConditionalTask(name="done", description="three", condition=lambda output: output.raw == "", **about),
        Task(name="four", description="four", **about),
        ConditionalTask(name="last", description="five", condition=lambda output: "nothing" in output.raw, **about),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
