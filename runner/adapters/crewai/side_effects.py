"""Whether importing a crew file has side effects, by an allow-list of the Python that it may contain."""

import ast
import functools

from runner.bundles import syntax

IMPORTS = {
    "crewai": {"Agent", "Crew", "LLM", "Process", "Task"},
    "crewai.project": {"CrewBase", "agent", "crew", "task"},
    "crewai.agents.agent_builder.base_agent": {"BaseAgent"},
    "os": {"environ", "getenv", "path"},
}
"""The names that a file may import, by module; it may import everything from `MODULES`."""

MODULES = frozenset({"__future__", "datetime", "json", "os", "pathlib", "textwrap", "typing"})
FORBIDDEN = frozenset(
    {"__builtins__", "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "getattr", "globals", "input",
     "locals", "open", "setattr", "vars"}
)  # fmt: skip
"""Builtins that a file may not refer to."""
WRITES = frozenset(
    {"chmod", "hardlink_to", "mkdir", "open", "rename", "rmdir", "symlink_to", "touch", "unlink", "write_bytes",
     "write_text"}
)  # fmt: skip
"""Methods that a file may not refer to."""
THROUGH_OTHERS = frozenset({"builtins", "codecs", "io", "os", "sys"})
"""Modules that are also attributes of modules of the standard library; `os` itself may be used for `IMPORTS` only."""


@functools.lru_cache(maxsize=64)
def is_side_effect_free(text: bytes) -> bool:
    """Whether executing this source changes nothing except objects that it creates."""
    nodes = list(ast.walk(syntax.parse(text)))
    looked_into = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    is_handed_on = any(isinstance(node, ast.Name) and node.id == "os" and id(node) not in looked_into for node in nodes)
    return not is_handed_on and all(map(_is_plain_node, nodes))


def _is_plain_node(node: ast.AST) -> bool:
    match node:
        case ast.Import(names):
            return all(one.name in MODULES and not (one.name == "os" and one.asname) for one in names)
        case ast.ImportFrom(module, names, level):
            allowed = IMPORTS.get(module or "", set())
            wanted = {one.name for one in names}
            is_library = module in MODULES - IMPORTS.keys() and not wanted & THROUGH_OTHERS
            return bool(level) or is_library or wanted <= allowed
        case ast.Attribute(ast.Name("os"), name):
            return isinstance(node.ctx, ast.Load) and name in IMPORTS["os"]
        case ast.Attribute(owner, name):
            is_own = isinstance(node.ctx, ast.Load) or (isinstance(owner, ast.Name) and owner.id == "self")
            return is_own and name not in WRITES | THROUGH_OTHERS and not name.startswith("_")
        case ast.Subscript(owner):
            return isinstance(node.ctx, ast.Load) or isinstance(owner, ast.Name)
        case ast.Name(name):
            return name not in FORBIDDEN
        case ast.Global() | ast.Await() | ast.AsyncFunctionDef():
            return False
    return True
