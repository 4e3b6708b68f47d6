"""A person is asked twice; tools are used before and after."""

import os
import time

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/asking/v1"

from pathlib import Path

from crewai import Agent, Crew, Task
from crewai.tools import tool


def trace(line):
    file = Path(os.environ["TRACE"])
    with file.open("a") as out:
        out.write(f"asking: {line}\n")
    while (hold := file.with_suffix(".hold")).exists() and file.read_text().count("\n") >= int(hold.read_text()):
        time.sleep(0.01)  # whoever wants it to be killed here does so


@tool("look")
def look(n: int) -> str:
    """Looks."""
    trace(f"look {n}")
    return f"seen {n}"


agent = Agent(role="R", goal="g {x}", backstory="b", tools=[look])
crew = Crew(
    agents=[agent],
    task_callback=lambda output: trace(f"task {output.raw}"),
    tasks=[
        Task(name="one", description="one {x} USE look n=1 END", expected_output="e", agent=agent, human_input=True),
        Task(name="two", description="two USE look n=2 END", expected_output="e", agent=agent, human_input=True),
    ],
)
