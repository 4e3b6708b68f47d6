"""Refuses options of other frameworks' agents that this package does not support, in one line."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from runner.core.errors import BadCrew

INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("system_template", "prompt_template", "response_template"), "models are told messages, by roles"),
    "use_system_prompt": "what an agent is comes first, as the system's message",
    "max_tokens": "say LLM(max_tokens=...)",
    "function_calling_llm": "the agent's own llm calls its tools",
    "max_retry_limit": "say LLM(max_retries=...) for one call, Task(max_retries=...) for all of it",
    "callbacks": "say step_callback=, or Task(callback=...)",
    **dict.fromkeys(
        ("allow_code_execution", "code_execution_mode"), "give it a tool that runs code where that is safe"
    ),
    **dict.fromkeys(("reasoning", "max_reasoning_attempts", "planning", "planning_config"), "say Crew(planning=True)"),
    **dict.fromkeys(("memory", "knowledge", "knowledge_sources", "embedder"), "give it a tool that looks things up"),
    **dict.fromkeys(("multimodal", "apps", "a2a", "skills", "agent_executor", "from_repository"), ""),
    **dict.fromkeys(("knowledge_storage", "knowledge_config", "tool_failure_policy"), ""),
}
"""Fields of theirs that would change what an agent does, and what to say instead."""

_AS_WITHOUT: Mapping[str, Any] = {"use_system_prompt": True, "max_retry_limit": 2, "code_execution_mode": "safe"}
"""Their own defaults, where they are no empty values."""

_NO_MATTER = frozenset(
    {"cache", "security_config", "use_better_compaction", "i18n", "adapted_agent", "executor_class", "crew"}
)
"""Fields that change nothing of what an agent answers."""


def refuse_unsupported(kind: str, given: Mapping[str, Any], fields: Collection[str]) -> None:
    """Raise `BadCrew` for the first argument that would be ignored."""
    for name, value in given.items():
        if name in fields or name in _NO_MATTER or (name in INSTEAD and (not value or _AS_WITHOUT.get(name) == value)):
            continue
        near = difflib.get_close_matches(name, fields, n=1)
        hint = INSTEAD.get(name, f"did you mean {near[0]}=?" if near else "")
        raise BadCrew(f"not supported: {kind}({name}=...){f'; {hint}' if hint else ''}")
