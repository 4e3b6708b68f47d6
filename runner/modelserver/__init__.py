"""A model server for tests and for trying things: it speaks the vendors' protocols, answers by a script, and counts.

Public as `runner.testing`. The standard library is all it needs.
"""

from typing import TYPE_CHECKING

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.modelserver.answers import Answer, Call, Rule, Script
    from runner.modelserver.request import ModelRequest
    from runner.modelserver.server import ModelServer

__all__ = ["Answer", "Call", "ModelRequest", "ModelServer", "Rule", "Script"]

__getattr__ = names_from(
    __name__,
    {
        "runner.modelserver.answers": "Answer Call Rule Script",
        "runner.modelserver.request": "ModelRequest",
        "runner.modelserver.server": "ModelServer",  # a server is imported by who starts one
    },
)
