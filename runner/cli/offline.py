"""``runner offline``: serves the small local model to any client."""

import signal
import threading

import click

from runner.cli.stdio import only, say
from runner.core.errors import MissingDependency, StoreUnreachable, UsageError
from runner.modelserver import ModelServer
from runner.modelserver.stubs.offline import Engine, make_ready


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8377, metavar="N", help="0 picks a free one. [8377]")
@click.option("--host", default="127.0.0.1", metavar="HOST", show_default=True, help="The address to listen on.")
@click.option("--fetch", is_flag=True, help="Only download the model, once, and print its path.")
def offline(port: int, host: str, fetch: bool) -> int:
    """Serve a small real model on this machine until Ctrl-C, in the protocols of OpenAI and Anthropic.

    `runner submit --offline` does not need it; other programs set OPENAI_BASE_URL to the URL that it prints.
    """
    with only() as write:
        try:
            model = make_ready(say)
        except MissingDependency as error:
            raise UsageError(str(error)) from None
        if fetch:
            write(f"{model}\n")
            return 0
        try:
            server = ModelServer(Engine(model), port=port, host=host, models=(model.stem,), keep=0)
        except OSError as error:
            raise StoreUnreachable(f"port {port} on {host} is not available: {error.strerror}; try --port 0") from None
        stopped = threading.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: stopped.set())
        with server:
            write(f"{server.url}\n")
            say(f"export OPENAI_BASE_URL={server.url} OPENAI_API_KEY=none")
            stopped.wait()
    return 0
