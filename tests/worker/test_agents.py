"""Tasks that agents do, on workers: with a model of the crew's own, its answers are steps like any other."""

from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

pytestmark = pytest.mark.timeout(120)

CREW = """
    from runner import Agent, BaseLLM, ConditionalTask

    class Model(BaseLLM):
        def call(self, messages, tools=None, callbacks=None, **options):
            asked = [m["content"] for m in messages if m["role"] == "user"]
            trace(f"asked {asked[0].split()[0]} {len(asked)}")
            return f"I think.\\nFinal Answer: {asked[0].split()[0].lower()} {len(asked)}"

    agent = Agent(role="writer on {topic}", llm=Model("of-mine"))
    crew = Crew(agents=[agent], tasks=[
        Task(name="a", description="Write on {topic}.", agent=agent,
             guardrail=lambda o: (True, o) if o.raw[-1] == "3" else (False, "longer")),
        ConditionalTask(name="never", description="Never.", agent=agent, condition=lambda o: "owls" in o.raw),
        Task(name="b", description="Review.", agent=agent),
    ])
"""


@pytest.mark.parametrize(
    "point", ["", "step done, not recorded", "step recorded, task not ended", "task done, not committed"]
)
def test_agents_do_tasks_on_the_fleet_and_no_recorded_answer_is_paid_again(
    point: str, fleet: Any, client: Client, crew_of: Any, trace: Any, well_told: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", **({"RUNNER_CRASH_AT": f"{point}:{flag}"} if point else {}))
    handle = client.submit(crew_of(CREW), {"topic": "owls"})
    result = handle.wait(60)
    assert (result.status, result.result) == ("completed", "review. 1")
    assert result.outputs == {"a": "write 3", "never": "", "b": "review. 1"}
    assert flag.exists() == bool(point)
    again = 1 if point == "step done, not recorded" else 0
    assert len([line for line in trace.lines() if line.startswith("asked")]) == 4 + again
    well_told(handle)
