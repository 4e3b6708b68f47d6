"""The Celery side of the runner; this folder installs as ``runner.tasks``."""

if __name__ != "runner.tasks":
    raise ImportError(f"import runner.tasks, not {__name__}: see CONTRIBUTING.md, Layout")
