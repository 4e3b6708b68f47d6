"""``crew.kickoff()``: the same plan and the same way of performing a task, in this process and without a store."""

import contextlib
import json
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from runner import adapters, backoff
from runner import output as outputs
from runner.adapters import Adapter
from runner.breakin import raise_in
from runner.crew import Crew, CrewOutput
from runner.errors import BadInput, TaskTimeout, TimedOut
from runner.gate import Gate
from runner.journal import Journal
from runner.output import TaskOutput
from runner.plan import Plan, frontier
from runner.work import Work


class _Steps:
    """Steps of one task, kept over its retries."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}

    def begin_step(self) -> None:
        """Nothing can be in doubt in one process."""

    def drop_step(self) -> None:
        """It raised; nothing to keep."""

    def record_step(self, step: str, value: str, *, replayed: int) -> None:  # noqa: ARG002 - the port's name
        """Keep it."""
        self.recorded[step] = value


def kickoff(crew: Crew, inputs: Mapping[str, Any]) -> CrewOutput:
    """Run a crew here. Raises what its first failing task raised, once nothing else is in flight."""
    if crew.checkpoint:
        warnings.warn(
            "kickoff() in this process writes no checkpoints yet; `runner submit` does", UserWarning, stacklevel=3
        )
    adapter = adapters.required(crew)
    plan = adapter.plan(crew, "crew")
    refuse_missing(plan, inputs)
    done: dict[str, TaskOutput] = {}
    flying: dict[Future[TaskOutput], str] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(plan.tasks))), thread_name_prefix="task") as pool:
        while failure is None and len(done) < len(plan.tasks):
            for task in frontier(plan, done.keys()):
                if task.key not in flying.values():
                    flying[pool.submit(_attempts, adapter, crew, plan, task.key, inputs, done)] = task.key
            finished, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in finished:
                key = flying.pop(future)
                failure = failure or future.exception()
                if future.exception() is None:
                    done[key] = future.result()
    if failure is not None:
        raise failure
    for key, name in adapter.output_files(crew).items():
        write_file(name, done[key].raw, inputs)
    last = done[plan.result]
    for key, output in done.items():
        if key in crew.by_key:
            crew.by_key[key].output = output
    return CrewOutput(
        raw=last.raw,
        json_dict=last.json_dict,
        pydantic=last.pydantic,
        tasks_output=[done[task.key] for task in plan.tasks],
    )


def refuse_missing(plan: Plan, inputs: Mapping[str, Any]) -> None:
    """Raise `BadInput` if the crew needs an input that is not there."""
    missing = sorted(plan.inputs - inputs.keys())
    if missing:
        names = " and ".join(repr(name) for name in missing)
        needs, give = ("inputs", "each") if len(missing) > 1 else ("input", "it")
        raise BadInput(
            f"the crew needs the {needs} {names}: give {give} with --input {missing[0]}=... or inputs={{...}}"
        )


def write_file(name: str, text: str, inputs: Mapping[str, Any]) -> Path:
    """Write a task's output where ``output_file`` says, relative to the working directory."""
    from runner.adapters.native import interpolate

    path = Path(interpolate(name, inputs))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@contextlib.contextmanager
def _timed(gate: Gate, timeout: float | None) -> Iterator[None]:
    """Break into the task in this thread after ``timeout`` seconds, at its next step or bytecode."""
    if timeout is None:
        yield
        return
    thread, stop = threading.get_ident(), TimedOut(f"it ran longer than its timeout of {timeout:g} s")

    def break_in() -> None:
        gate.ask(stop)
        raise_in(thread, TimedOut)

    timer = threading.Timer(timeout, break_in)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TimedOut:
        raise TaskTimeout(str(stop)) from None
    finally:
        timer.cancel()
        raise_in(thread, None)


def _attempts(
    adapter: Adapter, crew: Crew, plan: Plan, key: str, inputs: Mapping[str, Any], done: Mapping[str, TaskOutput]
) -> TaskOutput:
    allowed, first = adapter.retry(crew, key)
    steps = _Steps()
    for attempt in range(1, allowed + 2):
        try:
            return _perform(adapter, crew, plan, key, inputs, done, steps, attempt)
        except Exception:
            if attempt > allowed:
                raise
            time.sleep(backoff.delay(attempt, first))
    raise AssertionError("unreachable")


def _perform(
    adapter: Adapter,
    crew: Crew,
    plan: Plan,
    key: str,
    inputs: Mapping[str, Any],
    done: Mapping[str, TaskOutput],
    steps: _Steps,
    attempt: int,
) -> TaskOutput:
    def fetch(keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        return {one: done[one] for one in keys}

    gate = Gate()
    work = Work(
        run_id="here",
        branch="main",
        attempt=attempt,
        key=key,
        plan=plan,
        inputs=inputs,
        journal=Journal(steps.recorded, steps, gate),
        fetch=fetch,
        note=lambda kind, text: None,  # noqa: ARG005 - nobody asked for a record
    )
    with _timed(gate, plan.by_key[key].timeout):
        stored = adapter.perform(crew, work)
    raw, data = outputs.load(json.loads(stored))
    output = TaskOutput(name=key, raw=raw, json_dict=data)
    model = crew.by_key[key].output_model()
    if model is not None and data is not None:
        output.pydantic = model.model_validate(data)
    return output
