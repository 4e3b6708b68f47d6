"""What a file does as a script: the block under ``if __name__ == "__main__":``, which importing it leaves out."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

NAME = "__main__"
"""What the block is called where a function would be named, and what its crew is kept under."""


def names_in(module: ModuleType) -> set[str]:
    """The globals and attributes that the block names, and those of what it uses of its own bundle; empty if none."""
    code = _code(module)
    if code is None:
        return set()
    bundle = f"{module.__name__.partition('.')[0]}."
    found: set[str] = set()
    seen: set[int] = set()
    left: list[tuple[CodeType, dict[str, object]]] = [(code, vars(module))]
    while left:
        code, known = left.pop()
        names = set(names_of(code))
        found |= names
        for value in [known[name] for name in names if name in known]:
            if id(value) in seen or not str(getattr(value, "__module__", "")).startswith(bundle):
                continue
            seen.add(id(value))
            for one in vars(value).values() if inspect.isclass(value) else [value]:
                function = inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one
                if inspect.isfunction(function):
                    left.append((function.__code__, function.__globals__))
    return found


def names_of(code: CodeType) -> Iterator[str]:
    """The globals and attributes that code names, and those of the functions inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_of(inner)


def has_block(module: ModuleType) -> bool:
    """Whether the file has such a block."""
    return _code(module) is not None


def run(module: ModuleType) -> None:
    """Do what the block says, in the module itself: its functions may use what the block sets."""
    code = _code(module)
    if code is None:
        return
    before, sys.argv = sys.argv, [str(module.__file__)]  # what was typed is for this product
    try:
        exec(code, vars(module))
    finally:
        sys.argv = before


def _code(module: ModuleType) -> CodeType | None:
    file = Path(module.__file__ or "")
    if file.suffix != ".py":
        return None
    tree = ast.parse(file.read_bytes(), str(file))
    body = [line for one in tree.body if isinstance(one, ast.If) and _is_guard(one.test) for line in one.body]
    if not body:
        return None
    future = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    return compile(ast.Module([*future, *body], []), str(file), "exec", dont_inherit=True)


def _is_guard(test: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides) and any(
        isinstance(one, ast.Constant) and one.value == NAME for one in sides
    )
