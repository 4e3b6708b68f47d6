"""Language models: what an agent asks, the vendors' clients, and the journaling of what they send."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.llm.llm import LLM, BaseLLM

__all__ = ["LLM", "BaseLLM"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'runner.llm' has no attribute {name!r}")
    from runner.llm import llm  # the clients below it are also imported without it

    return getattr(llm, name)
