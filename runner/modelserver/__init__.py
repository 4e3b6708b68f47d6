"""A model server for tests and for trying things: it speaks the vendors' protocols, answers by a script, and counts.

Public as `runner.testing`. The standard library is all it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.modelserver.answers import Answer, Call, Rule, Script
    from runner.modelserver.request import ModelRequest
    from runner.modelserver.server import ModelServer

_HOMES = {
    "Answer": "runner.modelserver.answers",
    "Call": "runner.modelserver.answers",
    "ModelRequest": "runner.modelserver.request",
    "ModelServer": "runner.modelserver.server",
    "Rule": "runner.modelserver.answers",
    "Script": "runner.modelserver.answers",
}

__all__ = ["Answer", "Call", "ModelRequest", "ModelServer", "Rule", "Script"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'runner.modelserver' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)  # a server is imported by who starts one
