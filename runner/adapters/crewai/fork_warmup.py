"""Creates before the fork what CrewAI and its libraries create at first use, once for all forked processes.

Each would make its own, and a fork pays for each page of memory that it changes as much as for the work.
"""

import contextlib
import contextvars
import functools
import gc
import importlib
import logging
import os
import signal
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
from crewai import LLM, Agent, Crew, Task
from crewai.agents.agent_executor import AgentExecutor
from crewai.events import crewai_event_bus
from crewai.flow.runtime import FlowState

#: Models that pydantic completes when one of them is first made: events, and what OpenAI's client gives.
COMPLETED = {"crewai.events.base_events": "BaseEvent", "openai.types.chat.chat_completion": "ChatCompletion"}

REHEARSAL = 60  #: seconds that a fork may take for a kickoff; one that hangs ends then

#: Where a person may have other certificates.
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")

_MESSAGE = {"role": "assistant", "content": "Final Answer: -"}
_ANSWER = {
    "id": "-", "object": "chat.completion", "created": 0, "model": "gpt-4o-mini",
    "choices": [{"index": 0, "finish_reason": "stop", "message": _MESSAGE}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip


@functools.cache
def make() -> None:
    """Create all of it, as far as the installed CrewAI has it."""
    for module, name in COMPLETED.items():
        with contextlib.suppress(Exception):
            _complete(vars(importlib.import_module(module))[name])
    for what in (_share_certificates, _make_state):
        with contextlib.suppress(Exception):
            what()
    if leaves_nothing(_rehearse):
        contextvars.Context().run(_rehearse)


def _complete(model: Any) -> None:
    """Have pydantic complete a model and its subclasses."""
    model.model_rebuild(raise_errors=False)
    for made_of_it in model.__subclasses__():
        _complete(made_of_it)


def _share_certificates() -> None:
    """Load the default certificates of httpx once: else each model client does so itself, in 30 ms.

    They are loaded again if the environment names others, or the file changed.
    """
    import certifi

    default: Any = importlib.import_module("httpx._transports.default")
    make = default.create_ssl_context
    known: dict[tuple[object, ...], ssl.SSLContext] = {}

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert or "SSLKEYLOGFILE" in os.environ:
            return make(verify, cert, trust_env)
        asked = [os.environ.get(name) for name in CERTIFICATES] if trust_env else []
        place = Path(next(filter(None, asked), certifi.where()))
        key = (ssl.SSLContext, place, place.stat().st_mtime_ns if place.exists() else None)
        if key not in known:
            known[key] = make(verify, cert, trust_env)
        return known[key]

    default.create_ssl_context = create_ssl_context
    create_ssl_context()


def _make_state() -> None:
    """Create the state class of agents' executors. CrewAI creates the same class again for each executor, in 25 ms."""
    AgentExecutor.flow_definition()  # it names the class that CrewAI's source has
    state: Any = AgentExecutor._initial_state_t
    if not issubclass(state, FlowState):
        AgentExecutor._initial_state_t = type("StateWithId", (FlowState, state), {"__module__": FlowState.__module__})


def leaves_nothing(do: Callable[[], None]) -> bool:
    """Whether ``do`` leaves no more threads and open files than before, tried in a fork: later forks would hang."""
    if not (pid := os.fork()):
        code = 1
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(REHEARSAL)  # what it was forked from has threads: a lock of theirs is never released here
            before = _running()
            contextvars.Context().run(do)
            code = _running() != before
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _running() -> list[int]:
    gc.collect()
    counted = (len(list(Path("/proc/self", what).glob("*"))) for what in ("task", "fd"))
    return [threading.active_count(), *counted]  # and threads that Python did not begin


def _rehearse() -> None:
    """Kick off a crew of one task with a model that answers here. Its events have no handlers, so no thread starts."""

    def answered(_transport: Any, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=_ANSWER, request=request)

    with (
        tempfile.TemporaryDirectory() as storage,
        mock.patch.dict(os.environ, CREWAI_STORAGE_DIR=storage),
        mock.patch.dict(vars(crewai_event_bus), emit=lambda *_, **__: None),
        mock.patch.object(httpx.HTTPTransport, "handle_request", answered),
        mock.patch.object(logging.getLogger("crewai"), "level", logging.CRITICAL),
    ):
        llm = LLM(model="openai/gpt-4o-mini", base_url="https://api.openai.com/v1", api_key="-")
        agent = Agent(role="-", goal="-", backstory="-", llm=llm)
        Crew(agents=[agent], tasks=[Task(description="-", expected_output="-", agent=agent)]).kickoff()
