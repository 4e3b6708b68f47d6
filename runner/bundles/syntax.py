"""Parses Python source, in any thread."""

import ast
import threading

_parsing = threading.Lock()


def parse(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """Parse the text of a module as `ast.parse` does. Raises `SyntaxError`.

    One at a time: up to 3.11, CPython counts the depth for all threads together, and may raise `SystemError`.
    """
    with _parsing:
        return ast.parse(source, name)
