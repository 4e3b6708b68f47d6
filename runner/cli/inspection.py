"""The commands that only read: runs, show, wait, events."""

import dataclasses
import shlex
import time
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from runner.cli import batch, options, spending, tasks
from runner.cli.following import asked, follow, waits_for
from runner.cli.stdio import STYLE, ago, counted, cut, only, out, print_json, print_line, print_whole, say, table_of
from runner.client import Client
from runner.core.errors import Exit, UsageError
from runner.core.plain_text import json_text
from runner.providers.records import COUNTERS, BranchRecord, Event


def _now() -> int:
    return int(time.time() * 1000)


@click.command()
@click.option("--limit", type=options.Count(min=1), default=30, metavar="N", show_default=True, help="How many.")
@options.text("--batch", "of", metavar="BATCH", help="Only the runs of this batch (b-...).")
@options.json_and_url
def runs(limit: int, of: str | None, as_json: bool) -> int:
    """List the newest runs."""
    if of is not None and not batch.is_batch(of):
        raise UsageError(f"--batch {of!r} is not the id of a batch: b- and twelve hexadecimal digits")
    lines: dict[str, int] = {}
    with Client() as client:
        if of is None:
            found = client.runs(limit)
        else:
            numbered = client.batch(of).runs(limit)
            found = [run for _, run in numbered]
            lines = {run.id: number for number, run in numbered}
    for line in client.away:
        say(f"error: its runs are not listed: {line}")
    code = int(Exit.UNREACHABLE) if client.away else 0
    if as_json:
        print_json([({"line": lines[run.id]} if of else {}) | _run_json(run) for run in found])
        return code
    if not found:
        print_line("no runs yet: runner submit crew.py")
        return code
    heads = ("run", "line" if of else "crew", "status", "started", "took", "recoveries")
    table = table_of(heads, right=("line",), whole=("run", "line"), overflow="ellipsis")
    for run in found:
        took = ((run.ended_at or _now()) - run.created_at) / 1000
        table.add_row(
            run.id,
            f"{lines[run.id]:,}" if of else Text(run.crew),
            Text(run.status.value, style=STYLE[run.status.value]),
            ago(run.created_at, _now()),
            f"{took:.1f} s",
            str(run.recoveries or ""),
        )
    out.print(table)
    return code


def _run_json(run: Any) -> dict[str, Any]:
    data = dataclasses.asdict(run)
    data["run_id"] = data.pop("id")
    data["status"] = run.status.value
    data["ledger"] = run.ledger
    for name in (*COUNTERS, "inputs"):
        data.pop(name)
    return data


@click.command()
@options.run_id
@options.branch("The tasks of this branch. Default: the current one.")
@options.json_and_url
def show(run_id: str, branch: str | None, as_json: bool) -> int:
    """Show the state of RUN: its branches, and the tasks of one of them.

    Of a batch (b-...): how many of its runs were submitted, run, are over, failed, and what they cost.
    """
    if batch.is_batch(run_id, branch=branch):
        with Client() as client:
            state = client.batch(run_id).state()
        return batch.show(state, as_json, _now())
    with Client() as client:
        client = client.of(run_id)
        store, run_id = client.store.runs, client.id_of(run_id)
        run = store.get(run_id)
        plan = store.plan(run_id)
        result = client.run(run_id, branch or run.branch).result()
        committed = store.committed(run_id, result.branch)
        flying = {task.task: task for task in store.in_flight(run_id, result.branch)}
        lines = store.branch_records(run_id)
        line = next(one for one in lines if one.name == result.branch)
        times: dict[str, Any] = {"created_at": line.created_at or run.created_at, "ended_at": line.ended_at}
        kept = {one.name: store.count_checkpoints(run_id, one.name) for one in lines}
        past = client.run(run_id, result.branch).calls_unrecorded()
        waits = client.store.refusing() if run.status == "running" else ""
        idle = {task.state for task in flying.values()} == {"queued"} and result.status == "running" and not waits
        waiting_for = waits_for(client.run(run_id, result.branch)) if idle else ""
    given = run.inputs | line.inputs
    rows = tasks.rows(plan, committed, flying, result.branch, result.ledger)
    if as_json:
        branches = [dataclasses.asdict(one) | {"checkpoints": kept[one.name]} for one in lines]
        this = {**_run_json(run), **result.to_dict(), **times, "waiting_for_store": waits, "waiting_for": waiting_for}
        this |= {"calls_unrecorded": past}
        print_json(this | {"inputs": given, "tasks": rows, "checkpoints": kept, "branches": branches})
        return 0
    took = ((times["ended_at"] or _now()) - times["created_at"]) / 1000
    status = (result.status, STYLE[result.status])
    out.print(Text.assemble((run.crew, "bold"), f"  {run.id}  ", status, f"  branch {result.branch}  {took:.1f} s"))
    if result.models:
        out.print(Text(result.models, style="yellow"), soft_wrap=True)
    if waits:
        out.print(Text(f"waiting for the store: {waits}", style=STYLE["waiting"]), soft_wrap=True)
    if waiting_for:
        out.print(Text(f"waiting: {waiting_for}", style=STYLE["waiting"]), soft_wrap=True)
    if result.error:
        out.print(Text(result.error, style="red"), soft_wrap=True)
    if given:
        out.print(Text(f"inputs: {_in_short(given)}", style="dim"), soft_wrap=True)
    print_whole(tasks.table(rows, result.ledger["currency"], _now()))
    for row in rows:
        if trace := row.get("traceback"):
            out.print(Text(f"{row['task']}, attempt {row['attempts']}:", style="red"))
            out.print(Text(trace), soft_wrap=True)
    if result.asked:
        named = run_id if result.branch == run.branch else f"{run_id} --branch {shlex.quote(result.branch)}"
        for text in asked(result, named):
            out.print(Text(text, style=STYLE["waiting"]), soft_wrap=True)
    if len(lines) > 1:
        print_whole(_branch_table(lines))
    ledger = run.ledger
    if (calls := spending.table(result.ledger)) is not None:
        print_whole(calls)
    out.print(
        f"steps: {ledger['paid']} paid, {ledger['replayed']} replayed, {ledger['in_doubt']} in doubt; "
        f"{counted(run.recoveries, 'recovery', 'recoveries')}; checkpoints: "
        + (", ".join(f"{name} {count}" for name, count in kept.items()) or "none")
        + spending.format_ledger(result.ledger),
        soft_wrap=True,
    )
    if past:
        text = f"calls of models past the journal, made again after a restart: {spending.format_unrecorded(past)}"
        out.print(Text(text, style="yellow"), soft_wrap=True)
    return 0


def _in_short(inputs: Mapping[str, Any]) -> str:
    """Inputs in a line; ``--json`` has them in full."""
    shown = [f"{name}={cut(json_text(value), 60)}" for name, value in inputs.items()]
    return cut(", ".join(shown), 300)


def _branch_table(lines: list[BranchRecord]) -> Table:
    table = table_of(("branch", "status", "left", "leaves"), whole=("branch", "status", "left"))
    for line in lines:
        table.add_row(
            Text(line.name),
            Text(line.status.value, style=STYLE[line.status.value]),
            str(line.left),
            Text(line.parent and f"{line.parent} at {line.checkpoint or line.parent_seq}"),
        )
    return table


@click.command()
@options.run_id
@options.branch("Wait for this branch. Default: the current one.")
@options.seconds("--timeout", 0, "Stop waiting after this, with exit code 124; the run continues.")
@options.json_and_url
def wait(run_id: str, branch: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait for RUN; the exit code says how it ended, as submit's does.

    Of a batch (b-...), wait for all of its runs, and print their results as JSON lines, as submit --each does.
    """
    with only() as write, Client() as client:
        if batch.is_batch(run_id, branch=branch):
            all_of_it = client.batch(run_id)
            crew, total = all_of_it.runs(1)[0][1].crew, all_of_it.total()
            title, again = f"{crew}  {run_id}", f"runner wait {run_id}"
            return batch.follow(all_of_it, title, total, write, not as_json, again, timeout=timeout)
        handle = client.run(run_id, branch)
        record = handle.record
        if handle.status == "running":
            handle.client.ensure_worker(record.queue)
        total = handle.client.store.runs.plan(handle.id).total
        return follow(handle, record.crew, total, as_json, write, timeout=timeout)


@click.command()
@options.run_id
@click.option("--follow", "-f", is_flag=True, help="Keep printing until the run is over.")
@options.json_and_url
def events(run_id: str, follow: bool, as_json: bool) -> int:
    """Print the events of RUN, one per line (with --json, one JSON object per line)."""
    with Client() as client:
        for event in client.run(run_id).events(follow=follow):
            if as_json:
                print_json(event.to_dict())
            else:
                print_line(_event_line(event))
    return 0


def _event_line(event: Event) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(event.at / 1000)) + f".{event.at % 1000:03d}"
    fields = " ".join(f"{name}={value}" for name, value in event.fields.items() if name not in ("task", "branch"))
    return f"{clock}  {event.type:<25} {event.fields.get('task', '')}  {fields}".rstrip()
