"""Checks without which nothing changes that anybody sees, by script and check, each with the reason."""

EQUIVALENT: dict[str, str] = {}
