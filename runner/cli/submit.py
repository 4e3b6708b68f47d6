"""``runner submit``: the main job."""

import json
import sys
from typing import Any

import click

from runner.cli import options
from runner.cli.display import Display
from runner.cli.stdio import err, only
from runner.client import Client, RunHandle, RunResult
from runner.errors import Exit
from runner.inprocess import refuse_missing
from runner.submission import KEEP, prepare


@click.command(short_help="Run a crew on the fleet and wait for its result.")
@click.argument("target")
@click.option(
    "--input", "pairs", multiple=True, metavar="K=V", help="An input as text; K:=V takes V as JSON. Repeatable."
)
@click.option("--inputs", "inputs_file", metavar="FILE", help="Inputs as a JSON object; - reads stdin.")
@click.option("--id", "key", metavar="KEY", help="Submitting twice with the same KEY gives the same run.")
@options.as_json
@click.option("--detach", is_flag=True, help="Print the run id and return.")
@click.option("--max-checkpoints", type=click.IntRange(min=1), metavar="N", help="Keep the newest N on each branch.")
@click.option("--checkpoint-on", multiple=True, metavar="EVENT", help="Write a checkpoint at EVENT. Repeatable.")
@click.option(
    "--keep",
    type=click.FloatRange(min=1),
    default=KEEP,
    metavar="SECONDS",
    help="Keep a finished run so long (7 days).",
)
@click.option(
    "--bundle-limit", type=click.IntRange(min=1), metavar="BYTES", help="The most that is packed (RUNNER_BUNDLE_LIMIT)."
)
@options.queue
@options.redis_url
@options.broker_url
def submit(
    target: str,
    pairs: tuple[str, ...],
    inputs_file: str | None,
    key: str | None,
    as_json: bool,
    detach: bool,
    max_checkpoints: int | None,
    checkpoint_on: tuple[str, ...],
    keep: float,
    bundle_limit: int | None,
    queue: str | None,
    redis_url: str | None,
    broker_url: str | None,
) -> int:
    """Run the crew in TARGET: a path, path:object, or package.module:object.

    Exit codes: 0 completed, 1 failed, 2 bad usage or crew file (nothing stored), 3 cancelled, 4 store or broker out of
    reach, 5 waiting for a person. Ctrl-C detaches; the run goes on.
    """
    options.apply_environment(redis_url=redis_url, broker_url=broker_url, queue=queue)
    with only(clean=True) as write:
        inputs = options.read_inputs(pairs, inputs_file)
        prepared = prepare(target, limit=bundle_limit)
        refuse_missing(prepared.plan, inputs)
        with Client() as client:
            handle = client.submit(
                prepared, inputs, id=key, max_checkpoints=max_checkpoints, checkpoint_on=list(checkpoint_on), keep=keep
            )
            if not handle.created:
                err.print(f"the id {key!r} was submitted before: this is run {handle.id}")
            if detach:
                write(_detached(handle, as_json))
                return 0
            return follow(handle, prepared.plan.crew, len(prepared.plan.tasks), as_json, write)


def follow(handle: RunHandle, crew: str, total: int | None, as_json: bool, write: Any) -> int:
    """Show a run until it is over, then print what it came to. Returns the exit code."""
    try:
        with Display(f"{crew}  {handle.id}", total) as display:
            _hint_without_worker(handle, display)
            result = handle.wait(on_event=display)
    except KeyboardInterrupt:
        err.print(f"\ndetached; the run goes on: runner wait {handle.id}")
        return 130
    if result.status == "completed":
        for path in handle.write_output_files():
            err.print(f"wrote {path}")
    report(result, as_json, write)
    return int(result.exit_code)


def report(result: RunResult, as_json: bool, write: Any) -> None:
    """The result on stdout; how it went on stderr."""
    if as_json:
        write(json.dumps(result.to_dict(), ensure_ascii=False) + "\n")
        return
    if result.result is not None:
        write(result.result + ("" if result.result.endswith("\n") else "\n"))
    ledger = result.ledger
    text = f"{result.status}: {result.run_id}, {len(result.outputs)} tasks, {ledger['paid']} steps recorded"
    if result.recoveries:
        text += f"; {result.recoveries} recoveries, {ledger['replayed']} steps replayed, {ledger['in_doubt']} in doubt"
    print(text, file=sys.stderr)
    if result.error:
        print(f"error: {result.error}", file=sys.stderr)
        if result.exit_code in (Exit.FAILED, Exit.CANCELLED):
            print(f"go on with it: runner resume {result.run_id}", file=sys.stderr)


def _detached(handle: RunHandle, as_json: bool) -> str:
    return json.dumps({"run_id": handle.id, "status": handle.status}) + "\n" if as_json else f"{handle.id}\n"


def _hint_without_worker(handle: RunHandle, display: Display) -> None:
    store = handle.client.store
    queue = handle.record.queue
    if store.membership is None and not any(w.fields.get("queue") == queue for w in store.workers.alive()):
        display.note(f"no worker serves the queue {queue!r} yet; start one: runner worker --queue {queue}")
