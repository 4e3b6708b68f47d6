"""A crew of CrewAI that is measured: ten tasks with one call each. What it notes of itself goes to ``NOTES``."""

import json
import os
import time
from pathlib import Path

BEGAN, BUSY = time.time(), time.process_time()

from crewai import LLM, Agent, Crew, Task  # noqa: E402 - the time of it counts


def private() -> int:
    """The bytes of memory that this process shares with no other."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def note(_output: object) -> None:
    told = {
        "began": BEGAN, "loaded": LOADED, "ended": time.time(), "busy": [BUSY, LOADED_BUSY, time.process_time()],
        "private": private(), "pid": os.getpid(),
    }  # fmt: skip
    with Path(os.environ["NOTES"]).open("a") as out:
        print(json.dumps(told), file=out)


llm = LLM(model="openai/gpt-4o-mini", base_url=os.environ["MODELS"], api_key="none")
agent = Agent(role="writer", goal="write", backstory="It writes.", llm=llm)
crew = Crew(
    agents=[agent],
    tasks=[
        Task(description=f"Write part {i}.", expected_output="text", agent=agent, context=[], callback=note)
        for i in range(10)
    ],
)
LOADED, LOADED_BUSY = time.time(), time.process_time()

if __name__ == "__main__":
    crew.kickoff()
    BEGAN, BUSY = time.time(), time.process_time()
    crew.kickoff()
