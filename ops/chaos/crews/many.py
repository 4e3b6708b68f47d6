"""Two tasks, three calls of a model. Where it is told to, the last fails until there is the file that MENDED names."""

import os
from pathlib import Path

from runner import LLM, Crew, Task


def ask(ctx, *, task: str, calls: int) -> str:
    llm = LLM("openai/scripted", stream=False)
    label = ctx.inputs["label"]
    return " ".join(llm.call(f"run={label} task={task}: call {number}") for number in range(calls))


def first(ctx) -> str:
    return ask(ctx, task="first", calls=2)


def second(ctx) -> str:
    said = ask(ctx, task="second", calls=1)
    if ctx.inputs["fails"] and not Path(os.environ["MENDED"]).exists():
        raise ValueError("not mended yet")
    return f"{ctx.outputs['first'].raw} {said}"


crew = Crew(name="many", tasks=[Task(name="first", run=first), Task(name="second", run=second)])
