"""Names in data and code that CrewAI chose, kept so that each product reads what the other wrote.

No other module but its adapter says them.
"""

VERSION_KEY = "crewai_version"
"""Where a checkpoint says the version of its form."""

OTHER_WRITER = "CrewAI"
OTHER_VERSIONS = ((1, 14), (2,))
"""Whose checkpoints, of the same form, say a version from the first and before the second."""

STATE_CLASS_KEY = "__crewai_pydantic_class_schema__"
"""Where the initial state of a flow that is a class stands as its schema."""

TRIGGER_PAYLOAD = "crewai_trigger_payload"
"""The input that a start method gets as an argument of this name, if it has one."""

EVENT_BUS = "crewai_event_bus"
"""The event bus, as code imports it that was written for theirs."""
