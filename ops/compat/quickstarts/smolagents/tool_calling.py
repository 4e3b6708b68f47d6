from smolagents import LiteLLMModel, ToolCallingAgent, tool


@tool
def get_weather(location: str, celsius: bool | None = False) -> str:
    """
    Get the weather in the next days at given location.

    Args:
        location: the location
        celsius: whether to use Celsius
    """
    return "The weather is UNGODLY with torrential rains and temperatures below -10°C"


model = LiteLLMModel(model_id="gpt-4o")
agent = ToolCallingAgent(tools=[get_weather], model=model)
print("ToolCallingAgent:", agent.run("What's the weather like in Paris?"))
