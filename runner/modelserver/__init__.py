"""A model server for tests and for trying things: it speaks the vendors' protocols, answers by a script, and counts.

Public as `runner.testing`. The standard library is all it needs.
"""

from runner.modelserver.answers import Answer, Call, Rule, Script
from runner.modelserver.request import ModelRequest
from runner.modelserver.server import ModelServer

__all__ = ["Answer", "Call", "ModelRequest", "ModelServer", "Rule", "Script"]
