"""Decides which crews' tasks may share a process with other runs of the same file.

A crew qualifies if no code of its author runs during its tasks, and if reading its file has no side effects on the
process. Both are allow-lists. Any other crew has a process for each task.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crewai import Agent, Crew, Task
from pydantic import BaseModel

from runner.adapters.crewai import crew_plan
from runner.adapters.crewai.side_effects import is_side_effect_free
from runner.crews.callback_state import is_closing

MODELS = frozenset({"crewai.llms.providers.openai.completion"})
"""Models that are called through httpx, so a stop need not wait for a call."""

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
"""The fields that may be set on each part of a crew; all others have to have CrewAI's defaults."""


def may_share(crew: Crew, files: Iterable[Path]) -> bool:
    """Whether tasks of a crew that was read from these files may share a process with tasks of other runs."""
    found = list(files)
    return bool(found) and all(map(_is_plain_file, found)) and is_plain(crew)


def is_plain(crew: Crew) -> bool:
    """Whether a crew consists of CrewAI's own classes and of plain data."""
    crew_is = _is_made_of(crew, Crew, but={"after_kickoff_callbacks"}) and all(
        map(is_closing, crew.after_kickoff_callbacks)
    )
    tasks = all(_is_made_of(task, Task) for task in crew.tasks)
    return crew_is and tasks and all(_is_made_of(one, Agent) and _is_model(one.llm) for one in crew_plan.staff(crew))


def _is_made_of(part: Any, kind: type[BaseModel], but: Iterable[str] = ()) -> bool:
    """Whether it is an instance of CrewAI's own class, with no field set that is not in `FREE`."""
    return (
        type(part) is kind
        and vars(part).keys() <= kind.model_fields.keys()
        and all(
            name in FREE[kind] or name in but or vars(part).get(name) == field.get_default(call_default_factory=True)
            for name, field in kind.model_fields.items()
        )
    )


def _is_model(model: Any) -> bool:
    """Whether it is one of CrewAI's own models, configured with plain data, that does not stream."""
    if type(model).__module__ not in MODELS:
        return False
    fields = vars(model)
    return (
        not fields.get("stream")
        and fields.keys() <= type(model).model_fields.keys()
        and all(map(_is_data, fields.values()))
    )


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_data(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _is_plain_file(file: Path) -> bool:
    try:
        return file.suffix == ".py" and is_side_effect_free(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
