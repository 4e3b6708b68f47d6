"""Crews that between them use every command a task sends: steps, reads, retries, models, growth, a person's answer.

Each step leaves a line in `CHAOS_TRACE`; ``label`` tells the runs apart, ``pause`` is how many seconds a step takes.
"""

import os
import time
from pathlib import Path

from runner import LLM, Agent, Crew, Task, tool
from runner.flows import Flow, and_, listen, router, start


def leave(line: str) -> None:
    """One line in the trace, whole whoever writes beside."""
    with open(os.environ["CHAOS_TRACE"], "a") as trace:  # noqa: PTH123 - appended in one write
        trace.write(line + "\n")


def work(label: str, name: str, i: int, pause: float) -> int:
    leave(f"step {label}/{name}/{i}")
    time.sleep(pause)
    return i


def steps(name: str, n: int):
    def run(ctx) -> str:
        ctx.log(f"{name} begins")
        pause = ctx.inputs.get("pause", 0)
        done = [ctx.step("work", work, ctx.inputs["label"], name, i, pause) for i in range(n)]
        ctx.progress(n, n, "steps")
        return f"{name} {done} after {sorted(ctx.outputs[key].raw for key in ctx.outputs)}"

    return run


def flaky(ctx) -> str:
    """Fails the first time that it is done."""
    mark = f"failed {ctx.inputs['label']}"
    value = ctx.step("work", work, ctx.inputs["label"], "flaky", 0, 0)
    if mark not in Path(os.environ["CHAOS_TRACE"]).read_text().splitlines():
        leave(mark)
        raise RuntimeError("the first time")
    return f"flaky {value}"


left = Task(name="left", run=steps("left", 2), async_execution=True)
right = Task(name="right", run=steps("right", 2), async_execution=True)
graph = Crew(
    name="graph",
    tasks=[
        Task(name="collect", run=steps("collect", 2), description="{label}"),
        left,
        right,
        Task(name="flaky", run=flaky, max_retries=1, retry_delay=0.01),
        Task(name="join", run=steps("join", 1), context=[left, right]),
    ],
)


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    leave(f"step {thing}")
    return f"{thing} is there"


agent = Agent(role="worker", goal="look", llm=LLM("openai/scripted"), tools=[look], max_rpm=6000)
agents = Crew(
    name="agents",
    agents=[agent],
    tasks=[
        Task(name="first", description="run={label} task=first: look.", expected_output="words", agent=agent),
        Task(
            name="second",
            description="run={label} task=second: look.",
            expected_output="words",
            agent=agent,
            human_input=True,
        ),
    ],
)


class Growing(Flow):
    """Two rounds of two methods side by side."""

    @start("again")
    def begin(self):
        label, pause, rounds = self.state["label"], self.state.get("pause", 0), self.state.get("rounds", 0)
        self.state["rounds"] = self.step("work", work, label, "begin", rounds, pause) + 1

    @listen(begin)
    def left(self):
        self.state["left"] = self.state.get("left", 0) + 1

    @listen(begin)
    def right(self):
        self.state["right"] = self.state.get("right", 0) + 1

    @router(and_(left, right))
    def enough(self):
        return "again" if self.state["rounds"] < 2 else "done"

    @listen("done")
    def end(self):
        return [self.state[name] for name in ("rounds", "left", "right")]


growing = Growing()
