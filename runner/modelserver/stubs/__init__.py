"""A model server of this machine that stands in for the vendors': the demo's, or a small real model.

A run may ask for one (``runner submit --demo``, ``--offline``). The tasks of such a run send what they would have sent
to a vendor, and the last step on the way out of the process takes another turn: so all that the journal, the
account and the vendors' clients do stays as it is, and a call is known by the address it was meant for,
whichever process has the server.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from runner.core import settings
from runner.core.errors import UsageError

Standin = Literal["demo", "offline"]

#: What stands before what a person sees of such a run.
LABELS: dict[str, str] = {
    "demo": "DEMO: the answers come from a script that is built in, not from a model",
    "offline": "OFFLINE: the answers come from a very small model on the worker's own machine",
}

standin_here: ContextVar[Standin | None] = ContextVar("runner_standin", default=None)
_demos: dict[int, str] = {}  #: where a process has its demo server, by its pid: a fork has none of its parent's threads
_lock = threading.Lock()


def named(text: str) -> Standin | None:
    """The stand-in of that name; None for "". Raises `UsageError`."""
    if text and text not in get_args(Standin):
        raise UsageError(f"there is no stub model {text!r}, only {', '.join(get_args(Standin))}")
    return cast(Standin, text) if text else None


@contextlib.contextmanager
def using(standin: Standin | None) -> Iterator[Standin | None]:
    """Send this context's model calls to the stand-in, or with None to their own models. Raises `MissingDependency`."""
    before = standin_here.get()
    try:
        yield choose(standin)
    finally:
        standin_here.set(before)


def choose(standin: Standin | None) -> Standin | None:
    """`using`, for all that is yet to come in this context."""
    if standin == "offline":
        from runner.modelserver.stubs import offline

        offline.make_ready(lambda _: None)
    standin_here.set(standin)
    return standin


def chosen() -> Standin | None:
    """The stand-in of this context."""
    return standin_here.get()


def base_url(standin: Standin) -> str:
    """The address under which it is known in every process, as OpenAI's clients want it. It is unique."""
    return f"http://{standin}.invalid/v1"


def elsewhere(url: str, instead: Standin | None = None) -> str | None:
    """Return the address to send to instead of ``url``: the stand-in's that it names, else ``instead``.

    None if ``url`` is right. Starts the server if need be.
    """
    parts = urlsplit(url)
    name, _, end = (parts.hostname or "").partition(".")
    standin = named(name) if end == "invalid" and name in get_args(Standin) else instead
    if standin is None:
        return None
    return root(standin) + parts.path + (f"?{parts.query}" if parts.query else "")


def root(standin: Standin) -> str:
    """Return the root URL of the stand-in's server for this process, and start it at first use."""
    with _lock:
        if standin == "offline":  # it is another process, and may have ended
            from runner.modelserver.stubs import sharing

            return sharing.join()
        if os.getpid() not in _demos:
            from runner.modelserver import ModelServer
            from runner.modelserver.stubs import demo

            server = ModelServer(demo.answer, models=("demo",), delay=settings.demo_delay(), keep=0)
            _demos[os.getpid()] = server.start().root
        return _demos[os.getpid()]
