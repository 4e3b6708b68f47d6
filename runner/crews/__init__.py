"""Crews and their tasks as authors write them, how each task is performed, and what `kickoff()` does."""

from typing import TYPE_CHECKING

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.crews.crew import CrewOutput

__all__ = ["CrewOutput"]

__getattr__ = names_from(__name__, {"runner.crews.crew": "CrewOutput"})
