"""Imports models' clients ahead. An import takes seconds, for which a rescheduled task would otherwise wait."""

import importlib
import sys

from runner.llm.clients.model_names import Target

CLIENTS = ("openai", "anthropic", "litellm")


def imported() -> list[str]:
    """Return the names of the clients that this process has imported."""
    return [name for name in CLIENTS if hasattr(sys.modules.get(f"{__package__}.{name}"), "Client")]


def preload(name: str) -> None:
    """Import a client with everything that its first call needs. Raises `ImportError` if it is not installed here."""
    if name in CLIENTS:  # what is stored is compared, and never imported
        module = importlib.import_module(f"{__package__}.{name}")
        module.Client(Target(name, "none", "http://localhost", "none"), None, 0).warm()
