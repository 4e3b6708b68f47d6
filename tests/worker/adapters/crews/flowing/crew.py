"""A flow: crews in its methods, one of them for each of several inputs; agents and a model without a crew."""

import asyncio
import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/flowing/v1"

from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, and_, listen, router, start
from pydantic import BaseModel


class Parts(BaseModel):
    title: str
    parts: list[str]


class State(BaseModel):
    x: str = ""
    said: list[str] = []
    titles: dict[str, str] = {}


def crew(name: str, **about: object) -> Crew:
    agent = Agent(role=f"R {name}", goal="g {x}", backstory="b")
    return Crew(
        agents=[agent],
        tasks=[
            Task(name="first", description="first {x}", expected_output="e", agent=agent),
            Task(name="second", description="second", expected_output="e", agent=agent, **about),
        ],
    )


class Flowing(Flow[State]):
    @start()
    def each(self):
        results = crew("each").kickoff_for_each(inputs=[{"x": self.state.x}, {"x": "mice"}])
        self.state.said += [one.raw for one in results]

    @start()
    async def alone(self):
        alone = Agent(role="Alone", goal="g", backstory="b")
        result = await alone.kickoff_async("tell", response_format=Parts)
        self.state.titles["alone"] = result.pydantic.title

    @router(and_(each, alone))
    def which(self):
        return LLM(model="gpt-4o-mini").call(f"say {self.state.said} {self.state.titles}") and "more"

    @listen("more")
    async def end(self):
        lone = Agent(role="Lone", goal="g", backstory="b")
        said = await asyncio.gather(*(lone.kickoff_async(f"say {one}") for one in self.state.said))
        result = await crew("more", output_pydantic=Parts).akickoff(inputs={"x": said[0].raw})
        return f"{result.pydantic.title}, {said[1].raw}, {self.state.titles['alone']}"


if __name__ == "__main__":
    result = Flowing().kickoff(inputs={"x": "owls"})
