"""Guardrails that object twice, tools and callbacks that are awaited, files in folders, a plan of the agent's own."""

import asyncio
import os
import time

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/stubborn/v1"

from pathlib import Path

from crewai import Agent, Crew, Task
from crewai.tools import tool


def trace(line):
    file = Path(os.environ["TRACE"])
    with file.open("a") as out:
        out.write(f"stubborn: {line}\n")
    while (hold := file.with_suffix(".hold")).exists() and file.read_text().count("\n") >= int(hold.read_text()):
        time.sleep(0.01)  # whoever wants it to be killed here does so


@tool("look")
async def look(n: int) -> str:
    """Looks."""
    trace(f"look {n}")
    return f"seen {n}"


asked = 0


def third(output):
    global asked
    asked += 1
    return (True, f"{output.raw} good") if asked > 2 else (False, f"no, {asked}")


async def done(output):
    trace(f"done {output.raw}")


agent = Agent(role="R", goal="g {x}", backstory="b")
thinker = Agent(role="Thinker", goal="g", backstory="b", reasoning=True, max_reasoning_attempts=1)
crew = Crew(
    agents=[agent, thinker],
    task_callback=done,
    tasks=[
        Task(
            name="one",
            description="one {x} USE look n=1 END",
            expected_output="e",
            agent=agent,
            tools=[look],
            guardrail=third,
            markdown=True,
            output_file="sub/dir/{x}.md",
        ),
        Task(
            name="two",
            description="two USE look n=1 & look n=2 END",
            expected_output="e",
            agent=thinker,
            tools=[look],
            guardrails=[lambda output: (len(output.raw) > 3, output.raw), "is fine"],
        ),
    ],
)

if __name__ == "__main__":
    result = asyncio.run(crew.akickoff(inputs={"x": "owls"}))
