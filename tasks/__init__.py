"""The Celery side of the runner; this folder installs as ``runner.tasks``."""

from typing import TYPE_CHECKING

if __name__ != "runner.tasks":
    raise ImportError(f"import runner.tasks, not {__name__}: see CONTRIBUTING.md, Layout")

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.core.output import TaskOutput

__all__ = ["TaskOutput"]

__getattr__ = names_from(__name__, {"runner.core.output": "TaskOutput"})
