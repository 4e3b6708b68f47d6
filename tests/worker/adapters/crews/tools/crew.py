"""Tools, a guardrail, a model for the output, named context, and all kinds of callbacks."""

import os
import time

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/tools/v1"  # so that the server knows who asks

from pathlib import Path

from crewai import Agent, Crew, Process, Task
from crewai.tools import tool
from pydantic import BaseModel


class Report(BaseModel):
    title: str
    score: int


def trace(line):
    file = Path(os.environ["TRACE"])
    with file.open("a") as out:
        out.write(f"tools: {line}\n")
    while (hold := file.with_suffix(".hold")).exists() and file.read_text().count("\n") >= int(hold.read_text()):
        time.sleep(0.01)  # whoever wants it to be killed here does so


@tool("lookup")
def lookup(number: int) -> str:
    """Look a number up."""
    trace(f"lookup {number}")
    return f"value-{number}"


def before(inputs):
    trace(f"before {inputs['x']}")
    return {**inputs, "topic": inputs["x"].upper()}


def after(output):
    trace(f"after {len(output.tasks_output)} {output.tasks_output[0].agent}")
    output.raw += " [after]"
    return output


def on_task(output):
    trace(f"task {output.raw}")


def on_report(output):
    trace(f"report {output.pydantic.title} {output.agent}")


researcher = Agent(role="Researcher of {topic}", goal="Research {topic}", backstory="b", tools=[lookup])
writer = Agent(role="Writer", goal="Write", backstory="b")
research = Task(name="research", description="Research {topic}: CALL lookup", expected_output="facts", agent=researcher)
write = Task(
    description="Write about {topic}",
    expected_output="text",
    agent=writer,
    guardrail=lambda output: (True, output.raw + " [guarded]"),
)
report = Task(
    name="report",
    description="Report on {topic}",
    expected_output="JSON",
    agent=writer,
    output_pydantic=Report,
    context=[research, write],
    callback=on_report,
)
crew = Crew(
    agents=[researcher, writer],
    tasks=[research, write, report],
    process=Process.sequential,
    task_callback=on_task,
    step_callback=lambda step: trace(f"step {type(step).__name__}"),
    before_kickoff_callbacks=[before],
    after_kickoff_callbacks=[after],
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
