"""Importing models' clients ahead: that takes seconds, which a task that is handed over would otherwise wait for."""

import importlib
import sys

from runner.llm.clients.model_names import Target

CLIENTS = ("openai", "anthropic", "litellm")


def imported() -> list[str]:
    """Those that this process has imported."""
    return [name for name in CLIENTS if hasattr(sys.modules.get(f"{__package__}.{name}"), "Client")]


def preload(name: str) -> None:
    """Import one, with all that its first call would import. Raises ImportError if it is not installed here."""
    if name in CLIENTS:  # what is stored is compared, and never imported
        module = importlib.import_module(f"{__package__}.{name}")
        module.Client(Target(name, "none", "http://localhost", "none"), None, 0).warm()
