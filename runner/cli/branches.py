"""``runner fork`` and ``runner diff``."""

import sys
from pathlib import Path

import click

from runner.cli import options
from runner.cli.following import deliver, follow
from runner.cli.stdio import only, print_diff, say
from runner.client import Client
from runner.core.errors import BadInput


@click.command()
@options.run_id
@options.text("--checkpoint", metavar="ID", help="Fork from this checkpoint. Default: the head of the current branch.")
@options.branch("Name the new branch. Default: fork/CHECKPOINT_XXXXXX.")
@options.inputs("Change an input: text, or JSON for a list or an object; K:=V parses V as JSON. Repeatable.")
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="TASK=TEXT",
    help="Replace the output of a finished task; TASK=@FILE reads a file, TASK=@- stdin. Repeatable.",
)
@click.option("--detach", is_flag=True, help="Print the new branch and exit without waiting.")
@options.json_and_url
def fork(
    run_id: str,
    checkpoint: str | None,
    branch: str | None,
    pairs: tuple[str, ...],
    edits: tuple[str, ...],
    detach: bool,
    as_json: bool,
) -> int:
    """Start a new branch of RUN, with another input, or another output of a finished task.

    It redoes exactly the tasks that used what is changed, and does those that were not done yet. RUN may be in any
    state, and its other branches are not affected. The branch runs the code that was submitted.
    """
    with only() as write:
        inputs = options.read_inputs(pairs, None)
        changed = read_edits(edits)
        with Client() as client:
            client = client.of(run_id)
            run_id = client.id_of(run_id)
            if inputs:
                run = client.store.runs.get(run_id)
                inputs = options.as_before(inputs, pairs, run.inputs)
            handle = client.fork(run_id, checkpoint=checkpoint, branch=branch, inputs=inputs, edits=changed)
            line = client.store.runs.branch(run_id, str(handle.branch))
            grows = bool(client.store.runs.plan(run_id).grows)
            tasks = f"{handle.to_do} task{'' if handle.to_do == 1 else 's'} to "  # a worker may be at them already
            tasks += "run first" if grows else "run"
            say(f"{line.name} forked from {line.parent} at {line.checkpoint or 'its head'}: {tasks}")
            if not detach and handle.status == "completed":
                for note in handle.notes:
                    say(note)
                return deliver(handle, handle.result(), as_json, write)
            return follow(handle, "", None if grows else handle.to_do, as_json, write, detach=detach)


def read_edits(edits: tuple[str, ...]) -> dict[str, str]:
    """Outputs by task, as ``--edit`` gives them. Raises `BadInput` where one is none."""
    found = {}
    for edit in edits:
        task, sign, text = edit.partition("=")
        if not sign or not task:
            raise BadInput(f"--edit {edit!r} is neither TASK=TEXT nor TASK=@FILE")
        found[task] = _read(task, text[1:]) if text.startswith("@") else text
    return found


def _read(task: str, file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise BadInput(f"--edit {task}=@{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"--edit {task}=@{file} is not UTF-8 text") from None


@click.command()
@options.run_id
@click.argument("a", type=options.TEXT, metavar="A")
@click.argument("b", type=options.TEXT, metavar="B")
@options.json_and_url
def diff(run_id: str, a: str, b: str, as_json: bool) -> int:
    """Compare A and B, branches or checkpoints of RUN: their inputs, and each task's text, time and tokens."""
    with Client() as client:
        found = client.diff(run_id, a, b)
    return print_diff(found, as_json)
