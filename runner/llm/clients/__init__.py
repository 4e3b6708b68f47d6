"""Clients of language models: the vendors' own, behind one shape of question and answer.

A client is imported when it is first needed. None of them knows of runs, tasks or journals: what they send and receive
is journaled where it leaves the process.
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
