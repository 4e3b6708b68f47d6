"""`RedisProvider` for the real CrewAI, which accepts only its own two providers: this one passes as a `JsonProvider`.

    from crewai import CheckpointConfig, Crew
    from runner.adapters.crewai.redis_provider import crewai_checkpoint_file, crewai_provider

    provider = crewai_provider("redis://host:6379/0")
    crew = Crew(..., checkpoint=CheckpointConfig(location="my-run", provider=provider))
    crew.kickoff()

    newest = provider.latest("my-run").location
    with crewai_checkpoint_file(newest) as path:
        crew.kickoff(from_checkpoint=CheckpointConfig(location="my-run", provider=provider, restore_from=path))

CrewAI restores from files only, so a checkpoint is put into one for as long as it is restored. It writes model clients
with their keys: those are left out here, and come from the environment when it restores. What CrewAI does not write,
because two of its threads meet or a crew has a function in it, no provider can store.
"""

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.core.errors import UsageError
from runner.core.safe_paths import write_below
from runner.providers.base import BaseProvider, CheckpointInfo
from runner.providers.redis.provider import RedisProvider

_SECRET = re.compile(
    r'("(?:\w*api_?key|\w*secret\w*|\w*password|\w*access_key\w*|(?:\w+_)?token|authorization)"\s*:\s*)"(?:[^"\\]|\\.)*"',
    re.IGNORECASE,
)


def without_secrets(data: str) -> str:
    """Return the state as CrewAI writes it, with null in place of each key, password and token."""
    return _SECRET.sub(r"\1null", data)


def crewai_provider(url: str | None = None) -> Any:
    """Return a provider for CrewAI's ``CheckpointConfig``. Locations are those of `RedisProvider` with this ``url``."""
    return _kind()(runner_provider=RedisProvider.model_validate({"url": url}))


@contextmanager
def crewai_checkpoint_file(location: str, url: str | None = None) -> Iterator[str]:
    """Yield the path of a file that CrewAI can restore this checkpoint from; it is deleted afterwards."""
    provider = RedisProvider.model_validate({"url": url})
    data = provider.from_checkpoint(location)
    info = provider.find(location)
    with tempfile.TemporaryDirectory(prefix="runner-crewai-") as folder:
        # CrewAI reads the id from the name, and continues from it.
        name = f"{info.id}_p-{info.parent_id or 'none'}.json".replace("/", "_")
        yield str(write_below(Path(folder), name, data.encode()))


def _in_a_handler() -> bool:
    return threading.current_thread().name.startswith("CrewAI")


@cache
def _kind() -> Any:
    try:
        parent = import_module("crewai.state.provider.json_provider").JsonProvider
    except ImportError as error:
        raise UsageError(f"crewai is not installed here, or has no checkpoints: {error}") from None
    from pydantic import Field, PrivateAttr

    class RunnerRedisProvider(parent):  # type: ignore[misc, valid-type]  # a base class that is known when it is imported
        """CrewAI's provider, in Redis."""

        runner_provider: RedisProvider = Field(default_factory=RedisProvider, exclude=True)
        _wrote: Any = PrivateAttr(default_factory=threading.local)

        def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
            text = without_secrets(data)
            own = self.runner_provider.checkpoint(text, location, parent_id=parent_id, branch=branch)
            self._wrote.last = (location, branch, self.extract_id(own))
            return own

        acheckpoint, afrom_checkpoint = BaseProvider.acheckpoint, BaseProvider.afrom_checkpoint

        def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
            # CrewAI's handler prunes what it has just written, in its own thread, and does not say what that was: it
            # means this line, so that two runs at one location do not prune each other.
            written = self._wrote.__dict__.pop("last", None)
            if head is None and written is not None and written[:2] == (location, branch) and _in_a_handler():
                head = written[2]
            return self.runner_provider.prune(location, max_keep, branch=branch, head=head)

        def extract_id(self, location: str) -> str:
            return self.runner_provider.extract_id(location)

        def from_checkpoint(self, location: str) -> str:
            return self.runner_provider.from_checkpoint(location)

        def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
            return self.runner_provider.checkpoints(location, branch)

        def latest(self, location: str, branch: str | None = None) -> CheckpointInfo:
            return self.runner_provider.latest(location, branch)

    return RunnerRedisProvider
