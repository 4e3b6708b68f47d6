"""A crew of two agents, one with a tool; and the offline model's weights, fetched once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CREW = """
    from typing import Literal
    from runner import LLM, Agent, Crew, Task, tool

    @tool
    def population(city: Literal["Paris", "Rome"]) -> str:
        '''Look up how many people live in a city.'''
        trace(f"tool {city}")
        return {"Paris": "Paris has 2.1 million people.", "Rome": "Rome has 2.8 million people."}[city]

    def trace(line):
        with open(TRACE, "a") as out:
            out.write(line + chr(10))

    claude, gpt = LLM("anthropic/claude-sonnet-4-5", max_tokens=40), LLM("gpt-4o-mini", max_tokens=40)
    researcher = Agent(role="researcher", goal="find facts", llm=claude, tools=[population])
    writer = Agent(role="writer", goal="write short sentences", llm=gpt)
    crew = Crew(agents=[researcher, writer], tasks=[
        Task(name="fact", description="How many people live in Paris?", expected_output="a number", agent=researcher),
        Task(name="text", description="Write one sentence about it.", expected_output="a sentence", agent=writer),
    ])
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """What the tool leaves behind."""
    return tmp_path / "trace"


@pytest.fixture
def two_agents(write_crew: Callable[..., Path], trace: Path) -> Path:
    return write_crew(CREW.replace("TRACE", repr(str(trace))))


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has a key, and nobody may reach a vendor."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def weights() -> Iterator[Path]:
    """The offline model, kept where a person's own runs keep it, so that it is fetched once on a machine."""
    pytest.importorskip("xllamacpp", reason="the offline model needs the extra: pip install 'crew-runner[offline]'")
    from runner.core.errors import MissingDependency
    from runner.modelserver.stubs.weights import fetch

    try:
        yield fetch()
    except MissingDependency as error:
        pytest.skip(f"no network, no model: {error}")
