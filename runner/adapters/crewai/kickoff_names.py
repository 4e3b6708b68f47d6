"""Names the kickoffs inside a task for the run's events, by their inputs and their number."""

from collections.abc import Mapping
from contextvars import ContextVar

from runner.core.redaction import redact

_LONGEST = 60  #: characters of the inputs in a name

current: ContextVar[str] = ContextVar("runner_crewai_part", default="")
"""The name of the innermost kickoff around the code that runs; "" outside of any."""


def name_of(inputs: Mapping[str, object] | None, crew: str, number: int) -> str:
    """Return a name such as ``topic=owls [3]`` for a task's third kickoff; without inputs it has the crew's name."""
    text = ", ".join(" ".join(f"{name}={value}".split()) for name, value in (inputs or {}).items())
    text = redact(text)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"{text or crew or 'crew'} [{number}]"
