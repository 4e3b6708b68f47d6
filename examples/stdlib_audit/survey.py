"""Walks a module's syntax tree once, and notes what stands there."""

import ast
import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from sources import module_name

HARD = 10  # McCabe's own limit: a function with more decisions than this is hard to test
COPY_LINES = 10  # a body this long that stands twice was copied

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function
# An exception group's `except*` is a Try of its own kind.
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


@dataclass
class Found:
    """One function: where it is, and how much there is to understand."""

    name: str
    line: int
    lines: int
    complexity: int = 1  # McCabe: one, and one more for each decision
    depth: int = 0  # blocks within blocks
    body: tuple[str, int] | None = None  # fingerprint and lines, if it is long enough to be worth comparing


class Scope(NamedTuple):
    """What a node stands in."""

    public: bool
    names: tuple[str, ...] = ()
    in_class: bool = False
    function: Found | None = None
    depth: int = 0
    main: bool = False  # below `if __name__ == "__main__"`: not run by an import


class Survey:
    """What one walk over a module found."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.module = module_name(path)
        self.is_package = PurePosixPath(path).name == "__init__.py"
        self.functions: list[Found] = []
        self.docstrings: set[int] = set()  # the lines they stand on
        self.classes = 0
        self.public = self.documented = 0  # modules, classes and functions that people may use
        self.slots = self.annotated = 0  # places where an annotation could stand
        self.eager: set[str] = set()  # imported together with this module
        self.late: set[str] = set()  # imported when a function runs
        self._bound: set[str] = set()  # names that imports bind for the whole module
        self._used: set[str] = set()
        self._smells: Counter[str] = Counter()
        self._walk(tree)

    def smells(self) -> dict[str, int]:
        """How often something was found that a reviewer would ask about."""
        unused = set() if self.is_package else self._bound - self._used  # a package imports for others to import
        return {**self._smells, "unused imports": len(unused)}

    def _walk(self, tree: ast.Module) -> None:
        public = not any(part.startswith("_") for part in self.module.split("."))
        self._document(tree, public)
        stack: list[tuple[ast.AST, Scope]] = [(tree, Scope(public))]  # generated code is deeper than Python recurses
        while stack:
            node, scope = stack.pop()
            inner = self._enter(node, scope)
            for child in ast.iter_child_nodes(node):
                stack.append((child, scope if is_elif(child, node) else inner))

    def _enter(self, node: ast.AST, scope: Scope) -> Scope:
        """Note one node, and return what its children stand in."""
        if scope.function:
            scope.function.complexity += decisions(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(node, scope)
            case ast.ClassDef():
                return self._class(node, scope)
            case ast.Name():
                self._used.add(node.id)
            case ast.Constant(value=str(text)):
                self._used.add(text)  # it may stand in __all__, or be an annotation
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.ExceptHandler(type=None):
                self._smells["bare excepts"] += 1
        if isinstance(node, BLOCKS):
            scope = scope._replace(depth=scope.depth + 1, main=scope.main or is_main(node))
            if scope.function:
                scope.function.depth = max(scope.function.depth, scope.depth)
        return scope

    def _function(self, node: Function, scope: Scope) -> Scope:
        names = (*scope.names, node.name)
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        found = Found(".".join(names), node.lineno, lines)
        if not scope.function:
            found.body = fingerprint(node)
        self.functions.append(found)
        public = scope.public and not scope.function and not node.name.startswith("_")
        self._document(node, public)
        self._annotations(node, scope.in_class)
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        self._smells["mutable defaults"] += sum(isinstance(value, ast.List | ast.Dict | ast.Set) for value in defaults)
        return Scope(public, names, function=found)

    def _class(self, node: ast.ClassDef, scope: Scope) -> Scope:
        self.classes += 1
        public = scope.public and not scope.function and not node.name.startswith("_")
        self._document(node, public)
        return Scope(public, (*scope.names, node.name), in_class=True, function=scope.function)

    def _document(self, node: Documented, public: bool) -> None:
        documented = has_docstring(node)
        if documented:
            text = node.body[0]
            self.docstrings.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        self.public += public
        self.documented += public and documented

    def _annotations(self, node: Function, in_class: bool) -> None:
        args = [*node.args.posonlyargs, *node.args.args]
        static = any(isinstance(name, ast.Name) and name.id == "staticmethod" for name in node.decorator_list)
        if in_class and not static:
            args = args[1:]  # nobody annotates self
        args += [*node.args.kwonlyargs, *filter(None, (node.args.vararg, node.args.kwarg))]
        places = [*(arg.annotation for arg in args), node.returns]
        self.slots += len(places)
        self.annotated += sum(place is not None for place in places)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.ImportFrom):
            if node.module == "__future__":
                return  # a switch of the compiler
            origin = self._origin(node)
            modules = {f"{origin}.{alias.name}" for alias in node.names}  # `rank` sees which of them are modules
        else:
            modules = {alias.name for alias in node.names}
        (self.late if scope.function or scope.main else self.eager).update(modules)
        if not scope.names:
            self._bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names} - {"*"}

    def _origin(self, node: ast.ImportFrom) -> str:
        """What `from ... import` imports from, its leading dots resolved."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, node.module] if node.module else parts)


def decisions(node: ast.AST) -> int:
    """How many ways through a function this node adds."""
    if isinstance(node, DECISIONS):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return 0


def is_main(node: ast.AST) -> bool:
    """Whether this is `if __name__ == ...`."""
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False


def is_elif(child: ast.AST, node: ast.AST) -> bool:
    """Whether the child is the `elif` of an `if`: the tree nests them, people do not."""
    if not (isinstance(node, ast.If) and isinstance(child, ast.If)):
        return False
    return node.orelse == [child] and child.col_offset == node.col_offset


def has_docstring(node: Documented) -> bool:
    """Whether the first statement is a text."""
    return ast.get_docstring(node, clean=False) is not None


def fingerprint(node: Function) -> tuple[str, int] | None:
    """Equal for two functions with the same parameters and body; name, docstring and layout do not count."""
    body = node.body[1:] if has_docstring(node) else node.body
    lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
    if lines < COPY_LINES:
        return None
    text = "".join(ast.dump(part) for part in [node.args, *body])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest(), lines
