"""``runner checkpoint``: the terminal browser, and list, show, diff, resume, fork, prune for scripts."""

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Set
from typing import Any

import click
from rich.text import Text

from runner.cli import options
from runner.cli.stdio import out, print_diff, print_json, print_line, print_whole, table_of
from runner.client import Client
from runner.client.checkpoints import locate
from runner.client.checkpoints.model import Branch, Checkpoint, Details, branch_called, everything, find, newest
from runner.core.diff import compare
from runner.core.errors import NotFound, UsageError
from runner.providers.records import CheckpointRecord

LINE = 60  #: characters of an output in a table


class Words(click.Group):
    """Opens the browser where the first word is no verb."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb in that was left out."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["browse", *args]
        return super().parse_args(ctx, args)


where_argument = click.argument("where", type=options.ANY_TEXT, metavar="WHERE")
where_or_here = click.argument("where", type=options.ANY_TEXT, metavar="[WHERE]", required=False)
id_argument = click.argument("beginning", type=options.TEXT, metavar="[ID]", required=False)
crew_option = click.option(
    "--crew",
    type=options.TEXT,
    metavar="TARGET",
    help="The crew file, needed to resume or fork checkpoints in files: crew.py, crew.py:x.",
)


@click.group(cls=Words)
def checkpoint() -> None:
    """Browse checkpoints; resume or fork from one.

    WHERE is a run, a directory of JSON files, an SQLite file or a redis:// URL. Without a verb it opens in a browser
    for the terminal: `runner checkpoint ./.checkpoints --crew crew.py`.
    """


@checkpoint.command("browse", short_help="Open the browser (the default).")
@where_or_here
@crew_option
@options.redis_url
def browse(where: str | None, crew: str | None) -> int:
    """Browse WHERE: by default ./.checkpoints(.db), or the newest run. Resume, fork, compare, edit, prune."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise UsageError(
            f"the browser needs a terminal: `runner checkpoint list {where or 'WHERE'}` prints the checkpoints"
        )
    try:
        from runner.cli.browse import open_browser  # textual takes time to import, and is an extra
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("textual"):
            raise
        raise UsageError(
            "the browser needs textual: `pip install 'crew-runner[browser]'`; "
            f"`runner checkpoint list {where or 'WHERE'}` prints the checkpoints without it"
        ) from None

    return open_browser(where, crew)


@checkpoint.command("list", short_help="List checkpoints.")
@where_or_here
@options.branch("Only this branch.")
@options.json_and_url
def list_(where: str | None, branch: str | None, as_json: bool) -> int:
    """List the checkpoints of WHERE by branch, oldest first: by default of ./.checkpoints(.db), or the newest run."""
    where = locate.here() if where is None else where
    if locate.is_run(where):
        return _list_run(where, branch, as_json)
    with locate.opened(where) as source:
        kept = {one.id for one in everything(source.branches())}
        found = everything([branch_called(source, branch)] if branch else source.branches())
    if as_json:
        print_json([_plain(one) for one in found])
        return 0
    from runner.cli.browser import wording  # few of these commands print for people

    _table(
        ("checkpoint", "branch", "written", "size", "parent"),
        (
            (
                _id(one),
                Text(one.branch),
                Text(wording.moment(one.created_at)),
                Text(wording.size(one.size) if one.size is not None else ""),
                _parent(one, kept),
            )
            for one in found
        ),
        f"no checkpoints: nothing in {where} is one" if locate.holds_something(where) else "no checkpoints",
    )
    return 0


def _list_run(run_id: str, branch: str | None, as_json: bool) -> int:
    with Client() as servers:
        client, run_id = locate.run_called(servers, run_id)
        found = client.checkpoints(run_id, branch)
        kept = {one.id for one in (client.checkpoints(run_id) if branch else found)}
    if as_json:
        print_json([dataclasses.asdict(record) for record in found])
        return 0
    _table(
        ("checkpoint", "branch", "seq", "at", "task", "parent"),
        (
            (Text(one.id), Text(one.branch), Text(str(one.seq)), Text(one.trigger), Text(one.task), _parent(one, kept))
            for one in found
        ),
        "no checkpoints",
    )
    return 0


@checkpoint.command("show", short_help="Show one checkpoint.")
@where_or_here
@id_argument
@options.json_and_url
def show(where: str | None, beginning: str | None, as_json: bool) -> int:
    """Show the checkpoint ID of WHERE, an id or its beginning. Default: the newest complete one."""
    with locate.opened(locate.here() if where is None else where) as source:
        details = source.details(find(source, beginning))
    if as_json:
        print_json(_details_json(details))
        return 0
    from runner.cli.browser import wording

    print_whole(wording.of_checkpoint(details.checkpoint, details))
    if details.entities:
        out.print()
        print_whole(wording.entities(details))
    if details.inputs:
        _table(("input", "value"), ((Text(k), Text(_line(wording.value_text(v)))) for k, v in details.inputs.items()))
    if details.state:
        _table(("state", "value"), ((Text(k), Text(_line(wording.value_text(v)))) for k, v in details.state.items()))
    if details.tasks:
        _table(
            ("task", "status", "output"),
            ((Text(task.key), Text(task.status), Text(_line(task.output or ""))) for task in details.tasks),
        )
    return 0


@checkpoint.command("diff", short_help="Compare two checkpoints.")
@where_argument
@click.argument("a", type=options.TEXT, metavar="A")
@click.argument("b", type=options.TEXT, metavar="B")
@options.json_and_url
def diff(where: str, a: str, b: str, as_json: bool) -> int:
    """Compare the checkpoints A and B of WHERE: their inputs, and each task's status and output."""
    with locate.opened(where) as source:
        try:
            sides = [source.details(find(source, one)).side() for one in (a, b)]
        except NotFound as error:
            heads = {one.name: newest(one.checkpoints).id for one in source.branches() if one.checkpoints}
            if heads.keys().isdisjoint((a, b)):
                raise
            ids = " ".join(heads.get(one, one) for one in (a, b))
            hint = f"for the newest of a branch: `runner checkpoint diff {source.where} {ids}`"
            raise NotFound(f"{error}; {hint}") from None
    return print_diff(compare(*sides), as_json)


@checkpoint.command("resume", short_help="Resume from one, without the browser.")
@where_or_here
@id_argument
@crew_option
@options.json_and_url
def resume(where: str | None, beginning: str | None, crew: str | None, as_json: bool) -> int:
    """Resume from the checkpoint ID of WHERE, an id or its beginning. Default: the newest complete one.

    Checkpoints in files, SQLite or Redis resume in this process, with the code of --crew. A run resumes on the fleet.
    """
    from runner.cli.checkpoint_commands import execute  # loads crew files, which looking at checkpoints does not

    return execute("resume", where, beginning, crew, as_json=as_json)


@checkpoint.command("fork", short_help="Fork from one, without the browser.")
@where_or_here
@id_argument
@crew_option
@options.branch("Name the new branch. Default: fork/CHECKPOINT_XXXXXX.")
@options.inputs("Change an input, as in runner fork. Repeatable.")
@click.option("--edit", "edits", multiple=True, metavar="TASK=TEXT", help="Replace an output. Repeatable.")
@options.json_and_url
def fork(
    where: str | None,
    beginning: str | None,
    crew: str | None,
    branch: str | None,
    pairs: tuple[str, ...],
    edits: tuple[str, ...],
    as_json: bool,
) -> int:
    """Start a new branch at the checkpoint ID of WHERE (an id or its beginning), with other inputs or outputs."""
    from runner.cli.branches import read_edits
    from runner.cli.checkpoint_commands import execute

    changed = read_edits(edits)
    return execute("fork", where, beginning, crew, branch=branch or "", pairs=pairs, edits=changed, as_json=as_json)


@checkpoint.command("prune", short_help="Remove all but the newest.")
@where_argument
@click.option("--keep", type=options.Count(min=0), metavar="N", help="How many to keep on each branch.")
@click.option("--older-than", "age", type=options.Age(), metavar="AGE", help="Remove older ones: 7d, 24h, 30m, 90s.")
@options.branch("Only this branch; the others are left alone.")
@click.option("--dry-run", is_flag=True, help="Print how many would be removed; remove none.")
@options.json_and_url
def prune(where: str, keep: int | None, age: int | None, branch: str | None, dry_run: bool, as_json: bool) -> int:
    """Delete the checkpoints of each branch of WHERE beyond the newest N, or those older than AGE."""
    if keep is None and age is None:
        raise UsageError("choose what to remove: --keep N, or --older-than AGE")
    since = 0 if age is None else time.time_ns() // 1_000_000 - age
    removed = {}
    with locate.opened(where) as source:
        branches: Iterable[Branch] = [branch_called(source, branch)] if branch else source.branches()
        for one in branches:
            there = len(one.checkpoints)
            left = min(there if keep is None else keep, sum(found.created_at >= since for found in one.checkpoints))
            removed[one.name] = max(0, there - left) if dry_run else source.prune(left, one.name)
    if as_json:
        print_json({"removed": sum(removed.values()), "branches": removed, **({"dry_run": True} if dry_run else {})})
        return 0
    for name, count in removed.items():
        print_line(f"{name}: {count} {'would be ' * dry_run}removed")
    if not removed:
        print_line("no checkpoints")
    return 0


def _table(heads: tuple[str, ...], rows: Iterable[tuple[Text, ...]], nothing: str = "") -> None:
    table = table_of(heads, whole=("checkpoint",))
    for row in rows:
        table.add_row(*row)
    if not table.row_count:
        print_line(nothing)
        return
    if not nothing:
        out.print()
    print_whole(table)


def _id(one: Checkpoint) -> Text:
    return Text(one.id) if one.complete else Text.assemble((one.id, "red"), ("  torn", "bold red"))


def _parent(one: Checkpoint | CheckpointRecord, kept: Set[str]) -> Text:
    """The checkpoint that it came after, and whether that is no longer there."""
    gone = one.parent and one.parent not in kept
    return Text.assemble(one.parent, ("  pruned", "dim")) if gone else Text(one.parent)


def _line(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= LINE else f"{first[: LINE - 1]}…"


def _plain(one: Checkpoint) -> dict[str, Any]:
    """As ``--json`` prints it: what a place does not tell is left out."""
    unknown = {"trigger": "", "task": "", "seq": None, "size": None, "location": ""}
    found = dataclasses.asdict(one)
    return {name: value for name, value in found.items() if name not in unknown or value != unknown[name]}


def _details_json(details: Details) -> dict[str, Any]:
    done, total = details.progress
    return {
        **_plain(details.checkpoint),
        "version": details.version,
        "events": details.events,
        "progress": {"done": done, "total": total},
        "entities": [dataclasses.asdict(one) for one in details.entities],
        "inputs": dict(details.inputs),
        "state": dict(details.state),
        "tasks": [
            {"task": task.key, **{name: getattr(task, name) for name in ("status", "output", "description", "agent")}}
            for task in details.tasks
        ],
    }
