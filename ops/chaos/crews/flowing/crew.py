"""A flow of CrewAI: methods side by side, a crew in one, a model in another, a cycle, and a person's word."""

import os
import time

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/flowing/v1"

from pathlib import Path

from crewai import LLM, Agent, Crew, Task
from crewai.flow import Flow, and_, human_feedback, listen, router, start
from crewai.tools import tool
from pydantic import BaseModel


def trace(line):
    file = Path(os.environ["TRACE"])
    with file.open("a") as out:
        out.write(f"flowing: {line}\n")
    while (hold := file.with_suffix(".hold")).exists() and file.read_text().count("\n") >= int(hold.read_text()):
        time.sleep(0.01)  # whoever wants it to be killed here does so


@tool("look")
def look(n: int) -> str:
    """Looks."""
    trace(f"look {n}")
    return f"seen {n}"


class Notes(BaseModel):
    x: str = ""
    sides: list[str] = []
    rounds: int = 0
    text: str = ""


class Writing(Flow[Notes]):
    @start()
    def begin(self):
        trace("in begin")
        return self.state.x

    @listen(begin)
    def left(self, x):
        self.state.sides.append(str(LLM(model="gpt-4.1-mini").call(f"left of {x}")))
        trace("in left")

    @listen(begin)
    def right(self):
        trace("in right")
        self.state.sides.append("right")

    @router(and_(left, right))
    def ready(self):
        return "again"

    @listen("again")
    def write(self):
        self.state.rounds += 1
        writer = Agent(role="Writer", goal="g", backstory="b", tools=[look])
        about = f"round {self.state.rounds} USE look n={self.state.rounds} END"
        task = Task(description=about, expected_output="text", agent=writer)
        after = Task(description="and then", expected_output="text", agent=writer)
        self.state.text = Crew(agents=[writer], tasks=[task, after]).kickoff().raw
        trace("in write")

    @router(write)
    def enough(self):
        return "again" if self.state.rounds < 2 else "done"

    @listen("done")
    @human_feedback(message="Is it good?")
    def review(self):
        trace("in review")
        return self.state.text

    @listen(review)
    def publish(self, said):
        trace("in publish")
        text = str(LLM(model="gpt-4.1-mini").call(f"publish {self.state.text}, {said.feedback}"))
        return {"text": text, "rounds": self.state.rounds, "sides": sorted(self.state.sides), "said": said.feedback}
