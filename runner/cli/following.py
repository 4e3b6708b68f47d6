"""Follows a run that was submitted, resumed or asked for: shows it until it is over, then prints its result."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from runner.cli import spending
from runner.cli.display import Display
from runner.cli.stdio import counted, say
from runner.client import RunHandle, RunResult
from runner.client.files import write_files
from runner.client.store import Store
from runner.core.errors import Exit, LeadsOutside, RunnerError
from runner.core.plain_text import json_text
from runner.providers.redis.protocol import PROTOCOL

STILL_RUNNING = 124  #: what `timeout` exits with; the run itself has no exit code yet


def follow(
    handle: RunHandle,
    crew: str,
    total: int | None,
    as_json: bool,
    write: Any,
    *,
    timeout: float | None = None,
    detach: bool = False,
) -> int:
    """Show a run until it is over, then its result; with ``detach`` only its id. Returns the exit code."""
    for note in handle.notes:
        say(note)
    if detach:
        branch = {"branch": handle.branch} if handle.branch else {}
        about = {"run_id": handle.id, "status": handle.status} | branch if as_json else {}
        write((json_text(about) if as_json else handle.branch or handle.id) + "\n")
        return 0
    try:
        title = "  ".join(filter(None, (crew or handle.record.crew, handle.id, handle.branch)))
        with Display(title, total, partial(_spent, handle), partial(waits_for, handle)) as display:
            _hint_without_worker(handle, display)
            result = handle.wait(timeout, on_event=display)
    except KeyboardInterrupt:
        say(f"detached; the run continues: runner wait {handle.words}")
        return 130
    except TimeoutError as error:
        say(f"error: {error}: runner wait {handle.words}")
        return STILL_RUNNING
    return deliver(handle, result, as_json, write)


def _spent(handle: RunHandle) -> str:
    """What the run has come to so far, in words; "" of one that is gone: what follows the run says that."""
    try:
        return spending.format_progress(handle.ledger())
    except RunnerError:
        return ""


def waits_for(handle: RunHandle) -> str:
    """What a run without a task at work waits for, in words, as far as the store tells; "" of one that is gone."""
    try:
        found: str = handle.client.patient(partial(_seen_from_workers, handle), handle)
        return found
    except RunnerError:
        return ""


def _seen_from_workers(handle: RunHandle) -> str:
    store, queue = handle.client.store, handle.record.queue
    queues = _queues_served(store)
    environment = store.runs.field(handle.id, "environment").partition(" ")[0]
    if queue not in queues:
        return "a worker is starting" if store.membership is not None else f"no worker serves the queue {queue!r}"
    if environment and not any(one.endswith(f"@{environment}") for one in queues):
        return "a worker builds the environment that its files ask for, or is busy"
    return "a worker reads its code and imports what that needs, or is busy"


def _queues_served(store: Store) -> set[str]:
    return {str(one.fields.get("queue")) for one in store.workers.alive() if PROTOCOL in one.reads}


def deliver(handle: RunHandle, result: RunResult, as_json: bool, write: Any) -> int:
    """Write the files that tasks want and print the result. Returns the exit code.

    A branch beside the current branch writes none: they would replace those of that branch.
    """
    code = int(result.exit_code)
    if result.status == "completed" and handle.branch in (None, handle.record.branch):
        try:
            for one in write_files(handle.files(), Path()):
                if isinstance(one, LeadsOutside):
                    say(f"error: the output file {one}; its text: runner wait {handle.words} --json")
                    code = int(Exit.FAILED)
                else:
                    say(f"wrote {one}")
        except OSError as error:
            say(f"error: an output file cannot be written here: {error}; elsewhere: runner wait {handle.words}")
            code = int(Exit.FAILED)
    report(result, as_json, write, handle.words)
    return code


def report(result: RunResult, as_json: bool, write: Any, words: str) -> None:
    """Print the result to stdout and the summary to stderr. ``words`` are what a person types for the run."""
    if as_json:
        write(json_text(result.to_dict()) + "\n")
        return
    if result.result is not None:
        write(result.result + ("" if result.result.endswith("\n") else "\n"))
    ledger = result.ledger
    of_branch = words != result.run_id
    which = result.run_id + (f" {result.branch}" if of_branch else "")
    if result.models:
        say(result.models)
    text = f"{result.status}: {which}, {counted(len(result.outputs), 'task')}"
    others = of_branch or len({row["branch"] for row in ledger["by"]}) > 1
    text += f"{'; on all branches' if others else ','} {counted(ledger['paid'], 'step')} recorded"
    if result.recoveries:
        text += (
            f"; {counted(result.recoveries, 'recovery', 'recoveries')}, {counted(ledger['replayed'], 'step')} replayed"
        )
        text += f", {ledger['in_doubt']} in doubt"
    say(text + spending.format_ledger(ledger))
    if result.error:
        say(f"error: {result.error}")
        if result.exit_code in (Exit.FAILED, Exit.CANCELLED):
            say(f"resume it: runner resume {words}")
    if result.exit_code is Exit.WAITING:
        for line in asked(result, words):
            say(line)


def asked(result: RunResult, words: str) -> Iterator[str]:
    """What a person is asked, and how to answer. ``words`` name the run."""
    for question in result.asked:
        yield question.shown().rstrip()
    which = " --task TASK" if len(result.asked) > 1 else ""
    judged = " | --approve | --reject WHY" if any(one.may_be_judged for one in result.asked) else ""
    yield f"answer it: runner answer {words}{which} --text TEXT{judged}"


def _hint_without_worker(handle: RunHandle, display: Display) -> None:
    store, queue = handle.client.store, handle.record.queue
    if handle.status == "running" and store.membership is None and queue not in _queues_served(store):
        display.note(f"no worker serves the queue {queue!r} yet; start one: runner worker --queue {queue}")
