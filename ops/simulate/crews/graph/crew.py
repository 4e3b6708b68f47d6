"""A graph of four tasks with nine steps. What is paid, and what raises, the simulation decides and counts."""

import simulated

from runner import CheckpointConfig, Crew, Process, Task


def work(ctx):
    name = ctx.task.name
    for i in (1, 2):
        ctx.step("pay", simulated.pay, f"{name}/{i}")
    simulated.trouble()
    ctx.step("pay", simulated.pay, f"{name}/3")
    return f"{name}({', '.join(ctx.outputs[one].raw for one in AFTER[name])})"


AFTER = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
a = Task(name="a", run=work, max_retries=50)
b = Task(name="b", run=work, context=[a], max_retries=50)
c = Task(name="c", run=work, context=[a], max_retries=50)
crew = Crew(
    tasks=[a, b, c, Task(name="d", run=work, context=[b, c], max_retries=50)],
    process=Process.graph,
    checkpoint=CheckpointConfig(on_events=["*"], max_checkpoints=3),
)
