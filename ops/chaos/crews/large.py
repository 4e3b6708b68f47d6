"""Six tasks, two or three side by side, with outputs of 100 KB. Each step appends a line to a file when it is done."""

import base64
import os
import random
import time
from pathlib import Path

from runner import Crew, Process, Task

STEPS = 3


def text_of(label: str, task: str) -> str:
    """100 KB that do not get smaller."""
    return base64.b64encode(random.Random(f"{label}/{task}").randbytes(75_000)).decode()


def note(label: str, task: str, step: int) -> str:
    """A step: it is seen that it was done."""
    with Path(os.environ["TWO_VERSIONS_ACCOUNT"]).open("a") as account:
        account.write(f"{label} {task} {step}\n")
    time.sleep(0.3)
    return text_of(label, f"{task}/{step}")


def work(ctx):
    label, task = ctx.inputs["label"], ctx.task.name
    for other in ctx.task.context or []:
        if ctx.outputs[other.name].raw != text_of(label, other.name):
            raise ValueError(f"{task} was given another output of {other.name} than there was")
    for step in range(STEPS):
        if ctx.step(f"s{step}", note, label, task, step) != text_of(label, f"{task}/{step}"):
            raise ValueError(f"{task} was given another result of its step {step}")
    return text_of(label, task)


a = Task(name="a", run=work, context=[])
b = Task(name="b", run=work, context=[a])
c = Task(name="c", run=work, context=[a])
d = Task(name="d", run=work, context=[a, b])
e = Task(name="e", run=work, context=[b, c])
f = Task(name="f", run=work, context=[a, d, e])
crew = Crew(tasks=[a, b, c, d, e, f], process=Process.graph)
