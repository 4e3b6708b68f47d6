"""A task that is skipped, one that is not, and one at the end that is skipped: the result is that of the one before.

What was skipped is not in a context that names it; a dict with a date in it is that for later conditions, too.
"""

import os
from datetime import date

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/conditional/v1"

from crewai import Agent, Crew, Task
from crewai.tasks.conditional_task import ConditionalTask
from pydantic import BaseModel


class Dated(BaseModel):
    title: str
    when: date


agent = Agent(role="R", goal="g {x}", backstory="b")
about = {"expected_output": "e", "agent": agent}
one = Task(name="one", description="one {x}", **about)
skipped = ConditionalTask(name="skipped", description="two", condition=lambda output: False, **about)
crew = Crew(
    agents=[agent],
    tasks=[
        one,
        skipped,
        ConditionalTask(name="done", description="three", condition=lambda output: output.raw == "", **about),
        Task(name="four", description="four", context=[one, skipped], **about),
        Task(name="dated", description="five", output_json=Dated, **about),
        ConditionalTask(
            name="last", description="six", condition=lambda output: output.json_dict["when"].year == 1, **about
        ),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
