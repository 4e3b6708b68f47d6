"""A class of crews with YAML beside it, whose callbacks leave things on the instance."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/based/v1"

from crewai import Agent, Crew, Process, Task
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task
from pydantic import BaseModel


class Side(BaseModel):
    told: str


@CrewBase
class Based:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @before_kickoff
    def prepare(self, inputs):
        self.side, self.words, self.lock = Side(told=inputs["x"]), [inputs["x"]], object()
        return {**inputs, "y": "Y" + inputs["x"]}

    @after_kickoff
    def done(self, output):
        output.raw += f" side={self.side.told} words={self.words}"
        return output

    @agent
    def researcher(self) -> Agent:
        return Agent(config=self.agents_config["researcher"])

    @task
    def one(self) -> Task:
        return Task(config=self.tasks_config["one"], output_file="out_{x}.md")

    @task
    def two(self) -> Task:
        return Task(config=self.tasks_config["two"], guardrail=lambda output: (True, f"{output.raw}! {self.side.told}"))

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)


if __name__ == "__main__":
    result = Based().crew().kickoff(inputs={"x": "owls"})
