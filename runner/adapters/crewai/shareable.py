"""Whether tasks of a crew may be done in one process beside those of other runs of the same file.

They may where nothing of the author's is called while they are done, and reading the file can leave nothing behind that
is the process's. Both are lists of what is allowed. What is not on them has its task in a process of its own: what it
does to that concerns no other run, and a stop breaks into whatever it waits for.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crewai import Agent, Crew, Task
from pydantic import BaseModel

from runner.adapters.crewai import planned
from runner.adapters.crewai.plain_source import is_plain_source
from runner.crews.callback_state import is_closing

MODELS = frozenset({"crewai.llms.providers.openai.completion"})
"""Models whose calls go by httpx, so that a stop can leave one behind where it is."""

FREE: dict[type, frozenset[str]] = {
    Crew: frozenset({"agents", "cache", "checkpoint", "id", "name", "security_config", "tasks"}),
    Task: frozenset({
        "agent", "allow_crewai_trigger_context", "async_execution", "config", "context", "create_directory",
        "description", "expected_output", "id", "markdown", "name", "output_file", "security_config",
    }),
    Agent: frozenset({
        "backstory", "cache", "config", "date_format", "goal", "id", "inject_date", "llm", "max_execution_time",
        "max_iter", "max_retry_limit", "prompt_template", "respect_context_window", "response_template", "role",
        "security_config", "system_template", "use_system_prompt",
    }),
}  # fmt: skip
"""What may be said of each part of a crew; all else is as CrewAI has it."""


def may_share(crew: Crew, files: Iterable[Path]) -> bool:
    """Whether the tasks of a crew, read from these files, may be done beside those of other runs."""
    found = list(files)
    return bool(found) and all(map(_is_plain_file, found)) and is_plain(crew)


def is_plain(crew: Crew) -> bool:
    """Whether a crew is made of CrewAI's own parts, and of data."""
    crew_is = _is_made_of(crew, Crew, but={"after_kickoff_callbacks"}) and all(
        map(is_closing, crew.after_kickoff_callbacks)
    )
    tasks = all(_is_made_of(task, Task) for task in crew.tasks)
    return crew_is and tasks and all(_is_made_of(one, Agent) and _is_model(one.llm) for one in planned.staff(crew))


def _is_made_of(part: Any, kind: type[BaseModel], but: Iterable[str] = ()) -> bool:
    """Whether it is one of CrewAI's own, and nothing was said of it that is not free to say."""
    return (
        type(part) is kind
        and vars(part).keys() <= kind.model_fields.keys()
        and all(
            name in FREE[kind] or name in but or vars(part).get(name) == field.get_default(call_default_factory=True)
            for name, field in kind.model_fields.items()
        )
    )


def _is_model(model: Any) -> bool:
    """Whether it is one of CrewAI's own models, with data alone, that answers at once."""
    if type(model).__module__ not in MODELS:
        return False
    said = vars(model)
    return (
        not said.get("stream") and said.keys() <= type(model).model_fields.keys() and all(map(_is_data, said.values()))
    )


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_data(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _is_plain_file(file: Path) -> bool:
    try:
        return file.suffix == ".py" and is_plain_source(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
