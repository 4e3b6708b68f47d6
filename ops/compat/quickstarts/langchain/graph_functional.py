from langchain.chat_models import init_chat_model
from langgraph.func import entrypoint, task

model = init_chat_model("gpt-5-mini", model_provider="openai")


@task
def compose_essay(topic: str) -> str:
    """Generate an essay about the given topic."""
    return model.invoke([{"role": "user", "content": f"Write an essay about {topic}."}]).content


@entrypoint()
def workflow(topic: str) -> str:
    """Simple workflow that generates an essay with an LLM."""
    return compose_essay(topic).result()


if __name__ == "__main__":
    print(workflow.invoke("cat"))
