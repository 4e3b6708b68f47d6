"""``runner doctor``: checks everything, or one worker."""

import click

from runner.cli import options


@click.command()
@click.option(
    "--worker",
    metavar="HOST:PID|self",
    help="Check this worker only: exit code 1 if its heartbeat is missing or it is stopped. self: this container's.",
)
@options.json_and_url
def doctor(worker: str | None, as_json: bool) -> int:
    """Check the Redis, the workers and the settings that this machine would use, and report what is wrong."""
    return _worker(worker, as_json) if worker is not None else _everything(as_json)


def _worker(which: str, as_json: bool) -> int:
    from runner.cli.health import worker_health
    from runner.cli.stdio import print_json, print_line

    health = worker_health(which)
    if as_json:
        print_json([{"what": "worker", "found": health.found, "ok": health.ok, "exit_code": health.exit_code}])
    else:
        print_line(f"{'ok' if health.ok else '!!'}  worker {health.found}")
    return health.exit_code


def _everything(as_json: bool) -> int:
    from rich.text import Text

    from runner.cli.diagnosis import diagnose
    from runner.cli.stdio import out, print_json

    findings = diagnose()
    if as_json:
        print_json([finding.as_json() for finding in findings])
    else:
        for finding in findings:
            mark, style = ("ok", "green") if finding.ok else ("!!", "red")
            out.print(Text.assemble((mark, style), f"  {finding.what}: {finding.found}"), soft_wrap=True)
            if not finding.ok and finding.hint:
                out.print(Text(f"    {finding.hint}", style="yellow"), soft_wrap=True)
    bad = [finding for finding in findings if not finding.ok]
    return int(bad[0].exit_code) if bad else 0
