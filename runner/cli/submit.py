"""``runner submit``: runs a crew and waits for its result."""

import os
import sys
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
from runner.cli import input_lines, options, packing
from runner.cli.following import follow
from runner.cli.stdio import counted, only, reading, say
from runner.client import Client
from runner.client.batch import AT_ONCE
from runner.client.ids import check_key
from runner.client.submission import prepare
from runner.core.errors import MissingDependency, UnpaidReading, UsageError
from runner.core.settings import KEEP, LONGEST, misspelt
from runner.core.settings import bundle_limit as limit_of_bundles
from runner.engine.adapters import untested
from runner.llm.list_prices import configured
from runner.modelserver import stubs
from runner.modelserver.stubs.offline import make_ready


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
        if key is not None:
            check_key(key)
        if at_once is not None and each is None:
            raise UsageError("--at-once needs --each: it limits how many runs of a batch are active")
        many = at_once or AT_ONCE
        if each is not None and detach:
            raise UsageError("--each and --detach cannot be combined: --each submits the next run when one ends")
        inputs = options.read_inputs(pairs, inputs_file)
        file = parse_target(target).file
        _take_environment(file)
        source = stack.enter_context(input_lines.opened(each)) if each is not None else None
        given = inputs if source is None else input_lines.first(source, str(each), inputs)
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
        total, digest = input_lines.check(source, str(each), inputs, prepared) if source is not None else (1, "")
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
                lines = input_lines.lines(source, str(each), inputs)
                batch = client.submit_batch(
                    prepared, lines, input_lines.id_of(prepared, key, digest), many, total=total, **how
                )
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
