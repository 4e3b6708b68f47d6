"""The crews that are measured. ``crew.py:NAME`` picks one; parameters are inputs."""

import os
import statistics
import time
from typing import Any

from runner import Crew, Task
from runner.crews.context import TaskContext


def mark(path: str, word: str, i: int) -> None:
    """One line: what, which step, which process, when. The monotonic clock is one for all processes of a machine."""
    line = f"{word} {i} {os.getpid()} {time.monotonic():.6f}\n".encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


def marked(path: str, i: int, seconds: float) -> int:
    mark(path, "begin", i)
    time.sleep(seconds)
    mark(path, "end", i)
    return i


def walk(ctx: TaskContext) -> str:
    """Steps that leave marks, until told to stop."""
    path, i = ctx.inputs["marks"], 0
    while not os.path.exists(path + ".stop"):  # noqa: PTH110 - Path costs more than the step
        ctx.step("marked", marked, path, i, ctx.inputs["inside"])
        i += 1
    return f"{i} steps"


def kilobyte(i: int) -> str:
    return f"{i:06d}" + "x" * 1018


def journal(ctx: TaskContext) -> dict[str, float]:
    """Steps with a result of 1 KB, one after the other."""
    count = ctx.inputs["steps"]
    began = time.perf_counter()
    for i in range(count):
        ctx.step("kilobyte", kilobyte, i)
    return {"steps": count, "seconds": time.perf_counter() - began}


def journal_map(ctx: TaskContext) -> dict[str, float]:
    """The same, 64 at once."""
    count = ctx.inputs["steps"]
    began = time.perf_counter()
    ctx.map(kilobyte, range(count), at_once=64)
    return {"steps": count, "seconds": time.perf_counter() - began}


def post(client: Any, url: str, text: str) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    client.post(url, json={"model": "instant", "messages": [{"role": "user", "content": text}]}).raise_for_status()
    return time.perf_counter() - began


def asked(client: Any, url: str, count: int) -> float:
    """How long so many calls take, one after the other."""
    began = time.perf_counter()
    for i in range(count):
        post(client, url, f"{i:06d}")
    return time.perf_counter() - began


def in_turns(client: Any, urls: dict[str, str], count: int) -> dict[str, list[float]]:
    """The lower quartile and the median of so many calls of each kind, which take turns; each is the first as often."""
    took: dict[str, list[float]] = {name: [] for name in urls}
    for i in range(count):
        for name in sorted(urls, reverse=i % 2 == 1):
            took[name].append(post(client, urls[name], f"turn {i:06d}"))
    return {name: statistics.quantiles(found, n=4)[:2] for name, found in took.items()}


def ask(ctx: TaskContext) -> dict[str, Any]:
    """Calls on a path that is no model's, and calls of a model, by the HTTP client that the vendors' clients use. In
    the second attempt those of a model come from the journal."""
    import httpx2

    url, count = ctx.inputs["url"], ctx.inputs["calls"]
    plain, model = (
        f"{url}/v1/chat/unjournaled",
        f"{url}/v1/chat/completions",
    )  # as long: the client looks at each character
    with httpx2.Client() as client:
        took: dict[str, Any] = {"without": asked(client, plain, count), "with": asked(client, model, count)}
        if ctx.attempt == 1:
            took["turns"] = in_turns(client, {"with": model, "without": plain}, count)
    first = ctx.step("first", lambda: took)
    if ctx.attempt == 1:
        raise RuntimeError("once more")
    return {**first, "replayed": took["with"]}


def nothing(ctx: TaskContext) -> str:  # noqa: ARG001 - what a task takes
    return "done"


walker = Crew(name="walker", tasks=[Task(name="walk", run=walk)])
steps = Crew(name="steps", tasks=[Task(name="journal", run=journal)])
mapped = Crew(name="mapped", tasks=[Task(name="journal", run=journal_map, pool="process")])
hundred = Crew(name="hundred", tasks=[Task(name=f"task {i:03d}", run=nothing) for i in range(100)])
calls = Crew(name="calls", tasks=[Task(name="ask", run=ask, max_retries=1, retry_delay=0)])
one = Crew(name="one", tasks=[Task(name="only", run=nothing)])
