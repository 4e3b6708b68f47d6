"""The adapter for CrewAI: runs crews, flows and programs of the real CrewAI unchanged."""
