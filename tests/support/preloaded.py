"""What forked workers and commands have already: modules, and the entry points of what is installed."""

from importlib import metadata
from typing import Any

# What a worker and the verbs have imported.
IMPORTS = """
import runner.tasks.jobs, runner.tasks.pool, runner.tasks.steps, runner.tasks.worker
import runner.tasks.shared_thread, runner.providers.redis.shared_connection, runner.flows.adapter
import runner.llm.recording.aiohttp_transport, runner.llm.recording.http_client, runner.llm.recording.httpx_transport
import celery.concurrency.prefork, celery.concurrency.thread, celery.worker.worker, kombu.transport.redis
import celery.app.amqp, celery.events.receiver, billiard.synchronize
from runner.cli import control, fleet, inspection, submit, tasks
"""

# What the first task imports, and the first call of a model: a fifth of a second in each process.
OF_AGENTS = (
    "runner.crews.adapter", "runner.crews.kickoff.agents", "runner.agents.delegation", "runner.llm.clients.openai",
    "runner.llm.recording.recorded_call", "runner.modelserver.stubs.redirect", "openai.resources.chat.chat",
    "openai.resources.chat.completions.messages", "openai.types.chat.completions", "openai.lib.streaming.chat",
    "openai.lib._chat_completion_resources", "httpcore2", "truststore", "anyio.streams.tls", "encodings.idna",
)  # fmt: skip


def remember_entry_points() -> None:
    """Of each distribution once: reading those of all of them is a fifth of what a worker does to start."""
    found: dict[str, Any] = {}
    read = metadata.Distribution.entry_points.fget  # a property

    def entry_points(distribution: metadata.PathDistribution) -> Any:
        where = str(distribution._path)
        if where not in found:
            found[where] = read(distribution)
        return found[where]

    metadata.PathDistribution.entry_points = property(entry_points)
    metadata.entry_points()
