from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.workflow import Step, Workflow

researcher = Agent(name="Researcher", model=OpenAIChat(id="gpt-4o-mini"), instructions="Find the facts.")
writer = Agent(name="Writer", model=OpenAIChat(id="gpt-4o"), instructions="Write an article.")

content_workflow = Workflow(
    name="Content Creation",
    steps=[Step(name="Research", agent=researcher), Step(name="Write", agent=writer)],
)

content_workflow.print_response("AI trends in 2026", markdown=True)
