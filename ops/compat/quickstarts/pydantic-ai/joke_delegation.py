from pydantic_ai import Agent, RunContext, UsageLimits

joke_selection_agent = Agent(
    "openai:gpt-5-mini",
    system_prompt="Use the `joke_factory` to generate some jokes, then choose the best. Return just one joke.",
)
joke_generation_agent = Agent("openai:gpt-5-mini", output_type=list[str])


@joke_selection_agent.tool
async def joke_factory(ctx: RunContext[None], count: int) -> list[str]:
    r = await joke_generation_agent.run(f"Please generate {count} jokes.", usage=ctx.usage)
    return r.output


if __name__ == "__main__":
    result = joke_selection_agent.run_sync("Tell me a joke.", usage_limits=UsageLimits(request_limit=5))
    print(result.output)
    print(result.usage)
