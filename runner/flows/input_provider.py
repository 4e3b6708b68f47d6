"""Input providers: answer ``self.ask(...)`` instead of the terminal."""

import contextvars
import dataclasses
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

logger = logging.getLogger("runner.flows")


@dataclasses.dataclass
class InputResponse:
    """An answer with metadata: for example who gave it, and where."""

    text: str | None
    metadata: dict[str, Any] | None = None


@runtime_checkable
class InputProvider(Protocol):
    """Asks a person: the option, or class attribute, ``input_provider`` of a flow."""

    def request_input(
        self, message: str, flow: Any, metadata: dict[str, Any] | None = None
    ) -> str | InputResponse | None:
        """Return the answer; None if there is none."""


@dataclasses.dataclass
class FlowConfig:
    """Settings for all flows of the process that have no provider of their own."""

    input_provider: Any = None
    hitl_provider: Any = None


flow_config = FlowConfig()
"""That of this process."""


def requested(
    provider: Any, message: str, flow: Any, metadata: Mapping[str, Any] | None, timeout: float | None
) -> InputResponse:
    """Return a provider's answer; without text if the provider raised, or took longer than ``timeout`` seconds."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="ask")
    try:
        context = contextvars.copy_context()
        given = dict(metadata) if metadata is not None else None
        said = pool.submit(context.run, provider.request_input, message, flow, metadata=given).result(timeout)
    except TimeoutError:
        return InputResponse(None)
    except Exception:
        logger.warning("%s was asked %r and failed", type(provider).__qualname__, message, exc_info=True)
        return InputResponse(None)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return said if isinstance(said, InputResponse) else InputResponse(said if isinstance(said, str) else None)
