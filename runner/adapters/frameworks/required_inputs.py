"""What a function reads of what it is given, whatever happens: told from its source, without calling it."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.bundles import syntax
from runner.core.annotations import signature_of


def keys_read(function: Any) -> list[str]:
    """The keys that it looks up in its first argument, as in ``state["topic"]``, before it could do anything else."""
    return _read(function, ast.Subscript)


def attributes_read(function: Any, of: str) -> list[str]:
    """The attributes of this argument that it uses, as in ``event.topic``, before it could do anything else."""
    return _read(function, ast.Attribute, of)


def _read(function: Any, how: type[ast.expr], of: str = "") -> list[str]:
    plain = getattr(function, "__func__", function)
    if not inspect.isfunction(plain) or hasattr(plain, "__wrapped__") or inspect.isgeneratorfunction(plain):
        return []
    names = list(signature_of(function).parameters)
    found = _definition(plain)
    if found is None or not names:
        return []
    reads = _Reads(of or names[0], how)
    try:
        for line in found.body if isinstance(found.body, list) else [found.body]:
            reads.visit(line)
    except _Enough:
        pass
    return list(dict.fromkeys(reads.names))


def _definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """Return the syntax tree of a function; None if its source is not there or not unique."""
    code = function.__code__
    try:
        tree = syntax.parse(Path(code.co_filename).read_bytes(), code.co_filename)
    except (OSError, ValueError, SyntaxError):
        return None
    found = [one for one in ast.walk(tree) if _begins(one) == (code.co_name, code.co_firstlineno)]
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else None


def _begins(node: ast.AST) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name, min(line.lineno for line in (node, *node.decorator_list))
    return "", 0


class _Enough(Exception):
    """From here on it depends what is read: on a condition, or on what another function made of the argument."""


class _Reads(ast.NodeVisitor):
    """Goes through lines as they are executed, up to the first that may not be."""

    def __init__(self, of: str, how: type[ast.expr]) -> None:
        self.names: list[str] = []
        self._of, self._how = of, how

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Return | ast.Raise):
            super().generic_visit(node)
            raise _Enough
        if isinstance(node, ast.stmt) and not isinstance(node, _LINES):
            for one in _decides(node):
                self.visit(one)
            raise _Enough
        super().generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for one in node.targets:
            self.visit(one)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._is_it(node.value) and self._how is ast.Subscript and isinstance(node.slice, ast.Constant):
            self._note(node, node.slice.value)
        else:
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._is_it(node.value):
            self.generic_visit(node)
        elif self._how is ast.Attribute:
            self._note(node, node.attr)
        elif node.attr != "get":  # of what it has by itself, the one that changes nothing
            raise _Enough

    def visit_Name(self, node: ast.Name) -> None:
        if node.id == self._of:  # who has it may put something there
            raise _Enough

    def visit_Call(self, node: ast.Call) -> None:
        is_method = isinstance(node.func, ast.Attribute) and self._is_it(node.func.value)
        if not is_method or self._how is not ast.Attribute:
            self.visit(node.func)
        for one in (*node.args, *node.keywords):
            self.visit(one)

    def visit_Dict(self, node: ast.Dict) -> None:
        for one in [one for pair in zip(node.keys, node.values, strict=True) for one in pair]:
            if one is not None and not self._is_it(one):  # ``{**state}`` copies it
                self.visit(one)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._visit(node.test, node.msg)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._visit(*node.values)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.visit(node.left)
        if not self._is_it(node.comparators[0]):  # ``"topic" in state``
            self.visit(node.comparators[0])
        self._visit(None, *node.comparators[1:])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._visit(node.test, node.body, node.orelse)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit(None, node.body)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first, *others = node.generators
        made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        self._visit(first.iter, first.target, *first.ifs, *others, *made)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _visit(self, first: ast.AST | None, *others: ast.AST | None) -> None:
        """The others may not be evaluated: what they read does not count, but they may put something there."""
        if first is not None:
            self.visit(first)
        known = len(self.names)
        try:
            for one in others:
                if one is not None:
                    self.visit(one)
        finally:
            del self.names[known:]

    def _is_it(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._of

    def _note(self, node: ast.Subscript | ast.Attribute, name: object) -> None:
        if not isinstance(node.ctx, ast.Load):  # from here on it is there
            raise _Enough
        if isinstance(name, str):
            self.names.append(name)


_LINES = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Pass, ast.Import, ast.ImportFrom, ast.Global, ast.Assert)
"""Statements after which the next one follows."""


def _decides(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that a statement evaluates before it chooses the next lines."""
    for name in ("test", "iter", "subject"):
        if isinstance(one := getattr(node, name, None), ast.expr):
            yield one
