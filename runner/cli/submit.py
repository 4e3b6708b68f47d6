"""``runner submit``: runs a crew and waits for its result."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from runner.bundles import dotenv
from runner.bundles.bundle import pack
from runner.bundles.project import environment_file
from runner.bundles.target import parse_target
from runner.cli import batch as batches
from runner.cli import options, packing, spending
from runner.cli.display import Display
from runner.cli.stdio import counted, only, reading, say
from runner.client import Client, RunHandle, RunResult
from runner.client.batch import AT_ONCE
from runner.client.files import write_files
from runner.client.store import Store
from runner.client.submission import KEEP, prepare
from runner.core.errors import Exit, LeadsOutside, MissingDependency, RunnerError, UnpaidReading, UsageError
from runner.core.plain_text import json_text
from runner.core.settings import LONGEST, misspelt
from runner.core.settings import bundle_limit as limit_of_bundles
from runner.engine.adapters import untested
from runner.llm.list_prices import configured
from runner.modelserver import stubs
from runner.modelserver.stubs.offline import make_ready
from runner.providers.redis.protocol import PROTOCOL

STILL_RUNNING = 124  #: what `timeout` exits with; the run itself has no exit code yet


@click.command()
@click.argument("target")
@click.option(
    "--input", "pairs", multiple=True, metavar="K=V", help="An input as text; K:=V parses V as JSON. Repeatable."
)
@options.text("--inputs", "inputs_file", metavar="FILE", help="Inputs as a JSON object; - reads stdin.")
@options.text(
    "--each",
    metavar="FILE",
    help="Start one run per line of FILE, a JSON object of inputs. Prints results as JSON lines. - reads stdin.",
)
@click.option(
    "--at-once",
    type=options.Count(min=1),
    metavar="N",
    help=f"With --each: how many runs are active at once ({AT_ONCE}).",
)
@options.text(
    "--id", "key", metavar="KEY", help="Idempotency key: submitting again with the same KEY returns the same run."
)
@options.as_json
@click.option("--detach", is_flag=True, help="Print the run id and exit without waiting.")
@click.option("--max-checkpoints", type=options.Count(min=1), metavar="N", help="Keep the newest N on each branch.")
@options.text("--checkpoint-on", multiple=True, metavar="EVENT", help="Write a checkpoint at EVENT. Repeatable.")
@click.option(
    "--keep",
    type=options.Seconds(min=1, max=LONGEST),
    default=KEEP,
    metavar="SECONDS",
    help="How long to keep a finished run (7 days).",
)
@click.option(
    "--bundle-limit",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The largest bundle to pack (RUNNER_BUNDLE_LIMIT).",
)
@click.option("--dry-run", is_flag=True, help="Print what would be packed and what is left out; store nothing.")
@click.option("--demo", is_flag=True, help="Try it without a key: scripted answers replace the model.")
@click.option("--offline", is_flag=True, help="Use a very small model on the worker's machine (extra: offline).")
@options.queue
@options.redis_url
@options.broker_url
def submit(
    target: str,
    pairs: tuple[str, ...],
    inputs_file: str | None,
    each: str | None,
    at_once: int | None,
    key: str | None,
    as_json: bool,
    detach: bool,
    max_checkpoints: int | None,
    checkpoint_on: tuple[str, ...],
    keep: float,
    bundle_limit: int | None,
    dry_run: bool,
    demo: bool,
    offline: bool,
) -> int:
    """Run the agent, crew, flow or function in TARGET: a path, path:object, or package.module:object.

    Exit codes: 0 completed, 1 failed, 2 bad usage or crew file (nothing stored), 3 cancelled, 4 store or broker out of
    reach, 5 waiting for a person. Ctrl-C detaches; the run continues.
    """
    own = _own_files(each)  # before stdout is kept for the result alone
    with only() as write, ExitStack() as stack:
        if demo and offline:
            raise UsageError("choose --demo (scripted answers) or --offline (a small local model), not both")
        models = "demo" if demo else "offline" if offline else ""
        for near_miss in misspelt():
            say(f"warning: {near_miss}")
        if at_once is not None and each is None:
            raise UsageError("--at-once needs --each: it limits how many runs of a batch are active")
        many = at_once or AT_ONCE
        if each is not None and detach:
            raise UsageError("--each and --detach cannot be combined: --each submits the next run when one ends")
        inputs = options.read_inputs(pairs, inputs_file)
        file = parse_target(target).file
        _take_environment(file)
        source = stack.enter_context(batches.opened(each)) if each is not None else None
        given = inputs if source is None else batches.first(source, str(each), inputs)
        try:
            prepared = prepare(
                target,
                limit=bundle_limit,
                inputs=given,
                alone=True,
                meanwhile=reading(file),
                own=own,
                known=partial(_known_calls, key, batch=each is not None) if key is not None and not dry_run else None,
                paying=not dry_run,
            )
        except UnpaidReading as error:
            say(str(error))
            packed = pack(parse_target(target), limit=bundle_limit or limit_of_bundles(), own=own)
            packing.show(packed, file.name, as_json, write)
            return 0
        for line in (
            packing.calls(prepared.calls, prepared.calls_kept, file.name),
            packing.calls_unrecorded(prepared.calls_unrecorded, file.name),
            untested(prepared.adapter),
        ):
            if line:
                say(line)
        if prepared.is_script:
            say(f"{file.name} is run as Python runs it; --input prompt=... asks an agent at its top level instead")
        if dry_run:
            packing.show(prepared.packed, prepared.plan.crew, as_json, write)
            return 0
        if each is None:
            prepared.refuse_missing(prepared.given(inputs))
        total, digest = batches.check(source, str(each), inputs, prepared) if source is not None else (1, "")
        if line := packing.left_out(prepared.packed):
            say(line)
        configured()  # what is wrong with the prices is said before anything is paid
        options.check_broker()
        how: dict[str, Any] = {
            "max_checkpoints": max_checkpoints, "checkpoint_on": list(checkpoint_on), "keep": keep, "models": models,
        }  # fmt: skip
        with Client() as client:
            if models == "offline" and client.embedded:  # the worker is here, and needs it
                try:
                    make_ready(say)
                except MissingDependency as error:
                    raise UsageError(str(error)) from None
            if source is not None:
                lines = batches.lines(source, str(each), inputs)
                batch = client.submit_batch(prepared, lines, batches.id_of(prepared, key, digest), many, **how)
                title = f"{prepared.plan.crew}  {batch.id}"
                say(f"{title}: {counted(total, 'run')}, {many:,} at once")
                return batches.follow(batch, title, total, write, not as_json, "the same command")
            handle = client.submit(prepared, inputs, id=key, **how)
            if models:
                say(stubs.LABELS[models])
            if not handle.created:
                say(f"the id {key!r} was submitted before: this is run {handle.id}")
            return follow(handle, prepared.plan.crew, prepared.plan.total, as_json, write, detach=detach)


def _known_calls(key: str, *, batch: bool) -> dict[str, str]:
    """What models answered when the file was read that was submitted with this key before."""
    options.check_broker()
    with Client() as client:
        return client.known_calls(f"id {key}" if batch else key, batch=batch)


def _own_files(each: str | None) -> list[os.stat_result]:
    """The file of inputs, and what the shell has opened for the results: they may lie beside the crew, and be large."""
    found = []
    with suppress(OSError):
        found += [os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())]
    with suppress(OSError):
        found += [Path(each).stat()] if each is not None else []
    return found


def _take_environment(crew_file: Path) -> None:
    """What stands in the project's ``.env``, for the worker that is started here and to read the crew file."""
    file = environment_file(crew_file)
    names = dotenv.take(file) if file else []
    if names and file:
        own = "" if not os.environ.get("RUNNER_REDIS_URL") else ", to read the crew here: workers have their own"
        say(f"from {file}: {', '.join(names)}{own}")


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
    """Show a run until it is over, then hand over what it came to; with ``detach``, only say which it is.

    ``crew`` is its name, "" to look that up. Returns the exit code.
    """
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
        say(f"error: {error}; the run continues: runner wait {handle.words}")
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
