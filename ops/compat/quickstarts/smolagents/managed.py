from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent


class HFModelDownloadsTool(Tool):
    name = "model_download_counter"
    description = "Returns the name of the most downloaded model of a given task."
    inputs = {"task": {"type": "string", "description": "the task category"}}
    output_type = "string"

    def forward(self, task: str):
        return f"a model for {task}"


model = OpenAIModel(model_id="gpt-4o")
web_agent = ToolCallingAgent(
    tools=[HFModelDownloadsTool()],
    model=model,
    max_steps=3,
    name="web_search_agent",
    description="Runs web searches for you.",
)
manager_agent = CodeAgent(tools=[], model=model, managed_agents=[web_agent])

if __name__ == "__main__":
    answer = manager_agent.run("Which model is downloaded most for text-to-video?", max_steps=3)
    print(answer)
