"""Language models: what an agent asks, the vendors' clients, and the journaling of what they send."""

from typing import TYPE_CHECKING

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.llm.llm import LLM, BaseLLM

__all__ = ["LLM", "BaseLLM"]

# The clients below it are also imported without it.
__getattr__ = names_from(__name__, {"runner.llm.llm": "LLM BaseLLM"})
