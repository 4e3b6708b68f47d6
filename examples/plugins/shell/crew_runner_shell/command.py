"""``runner busy``: how many runs are not over."""

import click

from runner.client import Client


@click.command()
@click.option("--redis-url", metavar="URL", help="The state's Redis (RUNNER_REDIS_URL).")
def busy(redis_url: str | None) -> None:
    """Count the runs that are not over."""
    with Client(redis_url) as client:
        print(sum(run.status not in ("completed", "failed", "cancelled") for run in client.runs()))
