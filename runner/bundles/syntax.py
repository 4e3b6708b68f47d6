"""Parses Python source, in any thread."""

import ast
import threading

_parsing = threading.Lock()


def parse(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """Parse the text of a module as `ast.parse` does. Raises `SyntaxError`.

    One at a time: up to 3.11 CPython counts how deep the tree is for all threads together, and a thread that is let in
    between (by a finalizer, while garbage is collected) makes another one's parsing fail with a `SystemError`.
    """
    with _parsing:
        return ast.parse(source, name)
