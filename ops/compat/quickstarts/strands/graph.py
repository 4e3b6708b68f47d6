from strands import Agent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder

model = OpenAIModel(model_id="gpt-4o")
researcher = Agent(name="researcher", model=model, system_prompt="You are a research specialist.")
writer = Agent(name="report_writer", model=model, system_prompt="You are a report writing specialist.")

builder = GraphBuilder()
builder.add_node(researcher, "research")
builder.add_node(writer, "report")
builder.add_edge("research", "report")
builder.set_entry_point("research")
graph = builder.build()

result = graph("Research the impact of AI on healthcare and create a comprehensive report")
print(f"Status: {result.status}")
print(f"Execution order: {[node.node_id for node in result.execution_order]}")
