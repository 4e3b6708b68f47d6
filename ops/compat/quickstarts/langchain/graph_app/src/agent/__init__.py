"""New LangGraph Agent."""

from agent.graph import graph

__all__ = ["graph"]
