"""Whose callbacks a crew has: methods of an object keep what they find out on it."""

import inspect
from collections.abc import Callable
from typing import Any


def is_closing(callback: Callable[..., Any]) -> bool:
    """Whether it is the callback by which each class of crews closes its MCP servers."""
    return getattr(_behind(callback), "__name__", "") == "close_mcp_server"


def owner_of(callback: Callable[..., Any]) -> Any:
    """The object whose method it is; None for a plain function."""
    inner = _behind(callback)
    owner = getattr(inner, "__self__", None)
    if owner is None and inner is not callback:
        owner = _closed_over(callback).get("instance")
    return None if inspect.ismodule(owner) else owner


def _behind(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The method that a class of crews bound to its instance."""
    found = _closed_over(callback)
    return found["hook"] if "hook" in found and "instance" in found else callback


def _closed_over(callback: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(callback)
    return dict(inspect.getclosurevars(function).nonlocals) if inspect.isfunction(function) else {}
