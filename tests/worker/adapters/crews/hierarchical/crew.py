"""A manager that CrewAI makes, who has a coworker do the first task."""

import os

os.environ["OPENAI_BASE_URL"] = f"{os.environ['MODEL_SERVER']}/hierarchical/v1"

from crewai import Agent, Crew, Process, Task

worker, other = Agent(role="Worker", goal="g {x}", backstory="b"), Agent(role="Other", goal="g", backstory="b")
crew = Crew(
    agents=[worker, other],
    tasks=[
        Task(name="one", description="one {x}: DELEGATE to Worker", expected_output="e"),
        Task(name="two", description="two", expected_output="e", agent=other),
    ],
    process=Process.hierarchical,
    manager_llm="gpt-4.1-mini",
)

if __name__ == "__main__":
    result = crew.kickoff(inputs={"x": "owls"})
