from smolagents import CodeAgent, OpenAIModel

# Initialize a model
model = OpenAIModel(model_id="gpt-4o")

# Create an agent with no tools
agent = CodeAgent(tools=[], model=model)

# Run the agent with a task
result = agent.run("Calculate the sum of numbers from 1 to 10")
print(result)
