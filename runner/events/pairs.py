"""The table of event types that open and close a scope."""

__all__ = ["PAIRS", "SCOPE_ENDING_EVENTS", "SCOPE_STARTING_EVENTS", "VALID_EVENT_PAIRS"]

_DONE = ("completed", "failed")

#: What opens -> what closes it, after the common stem.
_STEMS: dict[str, tuple[str, ...]] = {
    "flow": ("finished", "failed", "paused"),
    "method_execution": ("finished", "failed", "paused"),
    "crew_kickoff": _DONE,
    "crew_train": _DONE,
    "crew_test": _DONE,
    "task": _DONE,
    "agent_execution": ("completed", "error"),
    "agent_evaluation": _DONE,
    "lite_agent_execution": ("completed", "error"),
    "agent_reasoning": _DONE,
    "llm_call": _DONE,
    "llm_guardrail": _DONE,
    "tool_usage": ("finished", "error"),
    "mcp_connection": _DONE,
    "mcp_tool_execution": _DONE,
    "memory_retrieval": _DONE,
    "memory_save": _DONE,
    "memory_query": _DONE,
    "knowledge_query": _DONE,
    "knowledge_search_query": _DONE,
    "a2a_delegation": ("completed",),
    "a2a_conversation": ("completed",),
    "a2a_server_task": ("completed", "canceled", "failed"),
    "a2a_parallel_delegation": ("completed",),
}

PAIRS: dict[str, tuple[str, ...]] = {
    f"{stem}_started": tuple(f"{stem}_{end}" for end in ends) for stem, ends in _STEMS.items()
}
"""Each event that opens a scope, with those that close it."""

VALID_EVENT_PAIRS: dict[str, str] = {end: start for start, ends in PAIRS.items() for end in ends}
"""Each event that closes a scope, with the one that opened it."""

SCOPE_STARTING_EVENTS: frozenset[str] = frozenset(PAIRS)
SCOPE_ENDING_EVENTS: frozenset[str] = frozenset(VALID_EVENT_PAIRS)
