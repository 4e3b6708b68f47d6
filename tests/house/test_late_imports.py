"""Imports inside functions stand in one table of docs/internals.md, with the reason; none of them is for a circle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest


def late(tree: ast.Module) -> Iterator[str]:
    """What is imported inside of the functions of a module."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.module or ""


@pytest.fixture
def table(root: Path) -> set[str]:
    page = (root / "docs/internals.md").read_text()
    section = page[page.index("### Imports inside functions") :].split("\n## ")[0]
    return set(re.findall(r"`([\w/]+\.py)`", section))


def test_who_imports_inside_a_function_is_in_the_table(root: Path, table: set[str]) -> None:
    found = {
        file.relative_to(root).as_posix()
        for folder in ("runner", "tasks", "providers")
        for file in (root / folder).rglob("*.py")
        if not file.relative_to(root).as_posix().startswith(("runner/tasks/", "runner/providers/"))
        and any(late(ast.parse(file.read_text())))
    }
    assert found == table


def circles(imported: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules each of which leads back to itself: what is left where no end can be taken away."""
    left = {module: set(others) for module, others in imported.items()}
    while ends := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in ends}
    while starts := left.keys() - set().union(*left.values()):
        left = {module: others for module, others in left.items() if module not in starts}
    return [sorted(left)] if left else []


def test_no_module_leads_back_to_itself_for_a_type_in_a_function_or_by_its_package() -> None:
    """The contract of import-linter compares siblings; a package that names what is in it is no sibling of that."""
    graph = grimp.build_graph("runner", cache_dir=None)
    assert circles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}) == [["b", "c"]]
