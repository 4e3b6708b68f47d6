"""``runner resume``, ``runner cancel`` and ``runner answer``."""

import click

from runner.cli import batch, options
from runner.cli.following import deliver, follow
from runner.cli.stdio import counted, only, print_json, print_line, say
from runner.client import Client
from runner.core.errors import Exit
from runner.core.plain_text import json_text


@click.command()
@options.run_id
@options.text(
    "--checkpoint", metavar="ID", help="Resume from this checkpoint, on a new branch if it is not the newest."
)
@options.branch("Resume this branch; the others are left alone.")
@click.option("--accept-code-change", is_flag=True, help="Use the crew's files as they are now.")
@click.option("--keep-code", is_flag=True, help="Use the crew's files as submitted, even if they have changed.")
@options.detach
@options.json_and_url
def resume(
    run_id: str,
    checkpoint: str | None,
    branch: str | None,
    accept_code_change: bool,
    keep_code: bool,
    detach: bool,
    as_json: bool,
) -> int:
    """Resume RUN where it stopped. Committed tasks do not run again; recorded steps are replayed.

    A resumed branch becomes the run's current branch, unless that one is still running. Of a batch (b-...), all runs
    that failed or were cancelled are resumed.
    """
    from runner.client.resuming import check_code_choice  # with it what reads a crew's code, which others do without

    code = {"accept_code_change": accept_code_change, "keep_code": keep_code}
    check_code_choice(**code)  # before a server is started
    with only() as write, Client() as client:
        if batch.is_batch(run_id, checkpoint=checkpoint, branch=branch, detach=detach):
            again = client.resume_many(run_id, **code)
            command = f"runner resume {run_id}"
            worst = batch.follow(again, run_id, None, write, not as_json, command, done="resumed")
            batch.say_what_is_left(client.batch(run_id))
            return worst
        handle = client.resume(run_id, checkpoint=checkpoint, branch=branch, **code)
        if not handle.created:
            say(f"run {handle.id} is completed: nothing is left to do")
            return deliver(handle, handle.result(), as_json, write)
        return follow(handle, "", None, as_json, write, detach=detach)


@click.command()
@options.run_id
@options.branch("Cancel this branch only.")
@click.option(
    "--reason",
    type=options.ANY_TEXT,
    default="cancelled by a person",
    metavar="TEXT",
    help="Why; stored with the run.",
)
@options.json_and_url
def cancel(run_id: str, branch: str | None, reason: str, as_json: bool) -> int:
    """Cancel all branches of RUN. Tasks in flight stop at once. What is recorded stays, and RUN can be resumed.

    Of a batch (b-...), cancel all runs that are not over; no more of its inputs are submitted.
    """
    with Client() as client:
        if batch.is_batch(run_id, branch=branch):
            many = client.batch(run_id).cancel(reason)
            if as_json:
                print_json({"batch_id": run_id, "status": "cancelled", "runs": many})
            else:
                print_line(f"{run_id} cancelled: {counted(many, 'run')}; no more are submitted")
            return 0
        run = client.run(run_id, branch)
        run.cancel(reason)
    if as_json:
        print_json({"run_id": run.id, "status": "cancelled"} | ({"branch": branch} if branch else {}))
    else:
        print_line(f"{run.id}{f' {branch}' if branch else ''} cancelled")
    return 0


@click.command()
@options.run_id
@options.text("--task", metavar="TASK", help="The task whose question to answer, if several asked.")
@options.branch("On this branch. Default: the current one.")
@click.option(
    "--text", type=options.ANY_TEXT, metavar="TEXT", help="The answer. Without an answer, print the question."
)
@click.option("--approve", is_flag=True, help="Accept the task's output.")
@click.option(
    "--reject",
    type=options.ANY_TEXT,
    metavar="WHY",
    help="Reject the task's output; the task runs again with this reason, then asks again.",
)
@options.detach
@options.json_and_url
def answer(
    run_id: str,
    task: str | None,
    branch: str | None,
    text: str | None,
    approve: bool,
    reject: str | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Answer RUN's question and resume it. What it did before is not done again."""
    with only() as write, Client() as client:
        if text is None and not approve and reject is None:
            run = client.run(run_id, branch)
            asked = run.client.store.runs.questions(run.id, branch or run.record.branch)
            if as_json:
                write(json_text([one.to_dict() for one in asked]) + "\n")
            for one in [] if as_json else asked:
                write(one.shown())
            if not asked:
                say(f"run {run.id} is not awaiting input")
            return int(Exit.WAITING) if asked else 0
        handle = client.answer(run_id, text, approve=approve, reject=reject, task=task, branch=branch)
        return follow(handle, "", None, as_json, write, detach=detach)
