"""Two tasks side by side with steps by themselves and several at once, between events that go with the next write."""

import simulated

from runner import CheckpointConfig, Crew, Process, Task
from runner.events import ToolUsageFinishedEvent, ToolUsageStartedEvent, event_bus


def work(ctx):
    name, tool = ctx.task.name, {"tool_name": "pay"}
    for i in (1, 2):
        event_bus.emit(work, ToolUsageStartedEvent(**tool))
        ctx.step("pay", simulated.pay, f"{name}/{i}")
        event_bus.emit(work, ToolUsageFinishedEvent(**tool))
    event_bus.emit(work, ToolUsageStartedEvent(**tool))
    many = ctx.map(simulated.pay, [f"{name}/{i}" for i in range(3, 15)], at_once=simulated.WIDTH, name="pay")
    event_bus.emit(work, ToolUsageFinishedEvent(**tool))
    simulated.trouble()
    return f"{name}({', '.join(many)})"


a, b = (Task(name=name, run=work, max_retries=50) for name in "ab")
crew = Crew(
    tasks=[a, b, Task(name="c", run=work, context=[a, b], max_retries=50)],
    process=Process.graph,
    checkpoint=CheckpointConfig(on_events=["task_completed"], max_checkpoints=3),
)
