"""Whether a crew's file can do nothing by being read but make its crew: what it may say is a list."""

import ast
import functools

from runner.bundles import syntax

IMPORTS = {
    "crewai": {"Agent", "Crew", "LLM", "Process", "Task"},
    "crewai.project": {"CrewBase", "agent", "crew", "task"},
    "crewai.agents.agent_builder.base_agent": {"BaseAgent"},
    "os": {"environ", "getenv", "path"},
}
"""What a file may import by name, by module; and all of `MODULES`."""

MODULES = frozenset({"__future__", "datetime", "json", "os", "pathlib", "textwrap", "typing"})
FORBIDDEN = frozenset(
    {"__builtins__", "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "getattr", "globals", "input",
     "locals", "open", "setattr", "vars"}
)  # fmt: skip
"""Builtins that a file may not name."""
WRITES = frozenset(
    {"chmod", "hardlink_to", "mkdir", "open", "rename", "rmdir", "symlink_to", "touch", "unlink", "write_bytes",
     "write_text"}
)  # fmt: skip
"""Methods that it may not name."""


@functools.lru_cache(maxsize=64)
def is_plain_source(text: bytes) -> bool:
    """Whether code can change nothing by being run but what it makes itself."""
    return all(map(_is_plain_node, ast.walk(syntax.parse(text))))


def _is_plain_node(node: ast.AST) -> bool:
    match node:
        case ast.Import(names):
            return all(one.name in MODULES for one in names)
        case ast.ImportFrom(module, names, level):
            allowed = IMPORTS.get(module or "", set())
            return bool(level) or module in MODULES - IMPORTS.keys() or {one.name for one in names} <= allowed
        case ast.Attribute(ast.Name("os"), name):
            return isinstance(node.ctx, ast.Load) and name in IMPORTS["os"]
        case ast.Attribute(owner, name):
            is_own = isinstance(node.ctx, ast.Load) or (isinstance(owner, ast.Name) and owner.id == "self")
            return is_own and name not in WRITES and not name.startswith("_")
        case ast.Subscript(owner):
            return isinstance(node.ctx, ast.Load) or isinstance(owner, ast.Name)
        case ast.Name(name):
            return name not in FORBIDDEN
        case ast.Global() | ast.Await() | ast.AsyncFunctionDef():
            return False
    return True
