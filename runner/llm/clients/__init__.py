"""Clients of language models: the vendors' own, behind one shape of question and answer, imported when needed.

None knows of runs, tasks or journals: their calls are journaled where they leave the process.
"""

from runner.llm.clients.completion import Completion, OnChunk, Piece, Request, ToolCalls, sendable
from runner.llm.clients.error_messages import Unreadable
from runner.llm.clients.model_names import Target, client_of, context_window, resolve

__all__ = [
    "Completion",
    "OnChunk",
    "Piece",
    "Request",
    "Target",
    "ToolCalls",
    "Unreadable",
    "client_of",
    "context_window",
    "resolve",
    "sendable",
]
