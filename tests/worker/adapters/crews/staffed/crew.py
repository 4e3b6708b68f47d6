"""Tools that keep something, that fail, that may be used twice, that end a task; a coworker who is asked; a cache."""

import os
import time

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/staffed/v1"

from pathlib import Path
from typing import Any

from crewai import Agent, Crew, Task
from crewai.tools import BaseTool, tool
from pydantic import PrivateAttr


def trace(line):
    file = Path(os.environ["TRACE"])
    with file.open("a") as out:
        out.write(f"staffed: {line}\n")
    while (hold := file.with_suffix(".hold")).exists() and file.read_text().count("\n") >= int(hold.read_text()):
        time.sleep(0.01)  # whoever wants it to be killed here does so


class Counter(BaseTool):
    name: str = "counter"
    description: str = "Counts up."
    total: int = 0
    _seen: set[int] = PrivateAttr(default_factory=set)

    def _run(self, by: int) -> str:
        self.total += by
        self._seen.add(by)
        trace(f"counter {by} {self.total} {sorted(self._seen)}")
        return f"{self.total} after {sorted(self._seen)}"


class Picky(BaseTool):
    name: str = "picky"
    description: str = "Is kept in the cache if it is long."
    cache_function: Any = lambda args, result: len(result) > 4
    max_usage_count: int | None = 2

    async def _run(self, q: str) -> str:
        trace(f"picky {q}")
        return f"{q}!"


@tool("fails")
def fails(q: str) -> str:
    """Fails."""
    trace(f"fails {q}")
    raise ValueError(f"no {q}")


@tool("final", result_as_answer=True)
def final(q: str) -> str:
    """The end."""
    trace(f"final {q}")
    return f"the end of {q}"


counter = Counter()
lead = Agent(role="Lead", goal="g {x}", backstory="b", tools=[counter, Picky(), fails], allow_delegation=True)
helper = Agent(role="Helper", goal="g", backstory="b", tools=[counter, final])
short = Agent(role="Short", goal="g", backstory="b", tools=[counter], max_iter=2)
ASK = "delegate_work_to_coworker task=please_USE_counter_by=9_END context=c coworker=Helper"
crew = Crew(
    agents=[lead, helper, short],
    cache=True,
    step_callback=lambda step: trace(f"step {type(step).__name__}"),
    tasks=[
        Task(
            name="kept",
            description=f"first {{x}} USE counter by=1; counter by=2; fails q=a; picky q=ab; picky q=abcd; {ASK} END",
            expected_output="e",
            agent=lead,
        ),
        Task(
            name="cached",
            description="then USE picky q=abcd; picky q=ab; picky q=a; picky q=b; counter by=4 END",
            expected_output="e",
            agent=lead,
        ),
        Task(
            name="short",
            description="short USE counter by=10; counter by=20; counter by=30 END",
            expected_output="e",
            agent=short,
        ),
        Task(name="end", description="USE counter by=7; final q=all END", expected_output="e", agent=helper),
    ],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
