"""Runs a file as a script: with the block under ``if __name__ == "__main__":``, which an import skips."""

import ast
import dis
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

from runner.bundles import syntax

NAME = "__main__"
"""What the block is called where a function would be named, and what its crew is kept under."""


def names_in(module: ModuleType) -> set[str]:
    """The globals and attributes that the block names, and those of what it uses of its own bundle; empty if none."""
    code = _code(module)
    return names_used(code, vars(module)) if code is not None else set()


def names_used(code: CodeType, known: dict[str, object]) -> set[str]:
    """The names in code whose globals are ``known``, and those of what it uses of its own bundle."""
    return {name for one in _used(code, known) for name in names_of(one)}


def imports_used(code: CodeType, known: dict[str, object]) -> set[str]:
    """The modules that code imports when it runs, and those that what it uses of its own bundle imports."""
    used = (inner for one in _used(code, known) for inner in _with_inner(one))
    return {str(one.argval) for code in used for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME"}


def _used(code: CodeType, known: dict[str, object]) -> Iterator[CodeType]:
    bundle = f"{str(known.get('__name__')).partition('.')[0]}."
    seen: set[int] = set()
    left = [(code, known)]
    while left:
        code, known = left.pop()
        yield code
        names = set(names_of(code))
        for value in [inner for name in names if name in known for inner in _held(known[name])]:
            if id(value) in seen or not str(getattr(value, "__module__", "")).startswith(bundle):
                continue
            seen.add(id(value))
            for one in vars(value).values() if inspect.isclass(value) else [value]:
                function = inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one
                if inspect.isfunction(function):
                    left.append((function.__code__, function.__globals__))


def _held(value: object, depth: int = 3) -> Iterator[object]:
    """The value, and the functions that it holds if a decorator made a command or the like of them (click, Typer)."""
    yield value
    if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value) or not depth:
        return
    inner = value if isinstance(value, list | tuple) else getattr(value, "__dict__", value)
    for one in inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list | tuple) else ():
        yield from _held(one, depth - 1)


def names_of(code: CodeType) -> Iterator[str]:
    """The globals and attributes that code names, and those of the functions inside it."""
    return (name for one in _with_inner(code) for name in one.co_names)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _with_inner(inner)


def is_call_of(module: ModuleType, name: str) -> bool:
    """Whether all that the block does is to call that function."""
    body = _body(module)[1]
    calls = [one.value for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    while calls and len(body) == 1 and isinstance(calls[0].func, ast.Attribute) and len(calls[0].args) == 1:
        calls = [one for one in calls[0].args if isinstance(one, ast.Call)]  # asyncio.run(...), sys.exit(...)
    return len(body) == 1 and any(isinstance(one.func, ast.Name) and one.func.id == name for one in calls)


def example_call(file: Path) -> str:
    """How a message names a function of a file without arguments, ``main``, else its first; "" if there is none."""
    tree = syntax.parse(file.read_bytes(), str(file)) if file.suffix == ".py" else ast.Module([], [])
    free = [
        one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and _is_free(one.args)
    ]
    public = [name for name in free if not name.startswith("_")]
    return f", as in {file.name}:{'main' if 'main' in public else public[0]}()" if public else ""


def _is_free(args: ast.arguments) -> bool:
    return len(args.posonlyargs + args.args) == len(args.defaults) and None not in args.kw_defaults


def kicks_off(file: Path) -> bool:
    """Whether such a block of a file, which is only parsed, kicks something off, itself or in functions of the file."""
    tree, body = _parsed(file) if file.is_file() else (ast.Module([], []), [])
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    left: list[ast.stmt] = [*body]
    while left:
        for one in ast.walk(left.pop()):
            if isinstance(one, ast.Attribute) and one.attr.startswith(("kickoff", "akickoff")):
                return True
            if isinstance(one, ast.Name) and one.id in functions:
                left.append(functions.pop(one.id))
    return False


def has_block(module: ModuleType) -> bool:
    """Whether the file has such a block."""
    return _code(module) is not None


def is_script(module: ModuleType) -> bool:
    """Whether the file does more than to define things when Python runs it: in such a block, or by itself."""
    tree, block = _body(module)
    calls = [one for one in tree.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    return bool(block or calls) or any(isinstance(one, ast.For | ast.While | ast.With) for one in tree.body)


_DEFINES = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


def does_its_work_at(file: Path, line: int) -> bool:
    """Whether a file defines nothing from this line of its top level on, or the line is in such a block."""
    body = syntax.parse(file.read_bytes(), str(file)).body
    rest = [one for one in body if (one.end_lineno or one.lineno) >= line]
    rest = [one for one in rest if not (isinstance(one, ast.If) and is_guard(one.test))]
    return not any(isinstance(inner, _DEFINES) for one in rest for inner in ast.walk(one))


def run(module: ModuleType) -> None:
    """Do what the block says, in the module itself: its functions may use what the block sets."""
    code = _code(module)
    if code is not None:
        _run(code, module)


def run_file(module: ModuleType) -> None:
    """Do all that the file does as a script, that block in its place, in a module that was not executed."""
    file = Path(module.__file__ or "")
    tree = syntax.parse(file.read_bytes(), str(file))
    for one in tree.body:
        if isinstance(one, ast.If) and is_guard(one.test):
            one.test = ast.copy_location(ast.Constant(value=True), one.test)
    _run(compile(tree, str(file), "exec", dont_inherit=True), module)


def _run(code: CodeType, module: ModuleType) -> None:
    before, sys.argv = sys.argv, [str(module.__file__)]  # what was typed is for this product
    try:
        exec(code, vars(module))
    finally:
        sys.argv = before


def _code(module: ModuleType) -> CodeType | None:
    tree, body = _body(module)
    if not body:
        return None
    future = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    return compile(ast.Module([*future, *body], []), str(module.__file__), "exec", dont_inherit=True)


def _body(module: ModuleType) -> tuple[ast.Module, list[ast.stmt]]:
    """The file, and what stands in such blocks of it."""
    return _parsed(Path(module.__file__ or ""))


def _parsed(file: Path) -> tuple[ast.Module, list[ast.stmt]]:
    tree = syntax.parse(file.read_bytes(), str(file)) if file.suffix == ".py" else ast.Module([], [])
    return tree, [line for one in tree.body if isinstance(one, ast.If) and is_guard(one.test) for line in one.body]


def is_guard(test: ast.expr) -> bool:
    """Whether it is ``__name__ == "__main__"``."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides) and any(
        isinstance(one, ast.Constant) and one.value == NAME for one in sides
    )
