"""Analyses what a crew file would do after the kickoff that it reached while it was read.

That is what follows in the frames of the `KickedOff`'s traceback. If nothing does, the kickoff is all of it.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from runner.bundles import frameworks, script, syntax
from runner.bundles.isolation import PREFIX
from runner.bundles.reading import KickedOff

_THROUGH = frozenset({"asyncio", "concurrent", "importlib", "threading"})
"""Packages that pass on what a kickoff gives, as frameworks do, and no more. A decorator of any other may."""

KICKOFFS = frozenset({"kickoff", "kickoff_async", "akickoff"})
_LOOPS = frozenset({"run", "run_until_complete"})
_FAILS = frozenset({"exit", "print", "print_exc", "error", "exception"})
"""What says that a kickoff failed, and how: the run says it, too."""

_NAMED = (ast.Name, ast.Attribute)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_whole(kicked_off: KickedOff) -> bool:
    """Whether the code that was read does nothing after its first kickoff but return what that gave.

    In doubt it is not: code that cannot be looked at, loops, context managers, whatever is done with the result.
    """
    way, through = list(_way(kicked_off)), _THROUGH | frameworks.names()
    for (frame, instruction), (called, _) in zip(way, [*way[1:], way[-1]], strict=True):
        if _module(frame).startswith(PREFIX):
            if not _ends(frame, instruction, called):
                return False
        elif _module(frame).partition(".")[0] not in through:
            return False
    return True


def _way(kicked_off: KickedOff) -> Iterator[tuple[FrameType, int]]:
    """The frames from where it was caught to where it was raised, each with the instruction that it is at."""
    trace = kicked_off.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")


def _ends(frame: FrameType, instruction: int, called: FrameType) -> bool:
    """Whether nothing is left to do in a frame when the call that it is in returns."""
    file = Path(frame.f_code.co_filename)
    try:
        tree = _parsed(file, file.stat().st_mtime_ns)
    except (OSError, ValueError, SyntaxError):  # code that was made at run time
        return False
    position = list(frame.f_code.co_positions())[instruction // 2]
    call = tree.ending_at(position)
    return call is not None and _is_kickoff(call, called) and tree.is_last(call)


def _is_kickoff(call: ast.expr, called: FrameType) -> bool:
    """Whether a call is that of a kickoff, or of the code that comes to one, and of nothing around it."""
    inner = call.value if isinstance(call, ast.Await) else call
    if not isinstance(inner, ast.Call):
        return False
    name = _name(inner.func)
    if _module(called).startswith(PREFIX):
        return called.f_code.co_name in (name, "__init__")
    return name in KICKOFFS or _is_loop(inner)


def _is_loop(call: ast.Call) -> bool:
    """``asyncio.run(...)`` and the like."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LOOPS and isinstance(call.func.value, ast.Name)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


class _Tree:
    """A source file, parsed; each node knows what it is in."""

    def __init__(self, source: bytes, name: str) -> None:
        self._outer: dict[ast.AST, ast.AST] = {}
        self._calls: dict[tuple[int, int], list[ast.expr]] = {}
        for node in ast.walk(syntax.parse(source, name)):
            self._outer.update(dict.fromkeys(ast.iter_child_nodes(node), node))
            if isinstance(node, ast.Call | ast.Await):
                end = (node.end_lineno or 0, node.end_col_offset or 0)
                self._calls.setdefault(end, []).append(node)

    def ending_at(self, position: tuple[int | None, int | None, int | None, int | None]) -> ast.expr | None:
        """The call at an instruction's position: lines, then columns, each first and last.

        A chain of methods on several lines begins elsewhere than it says; no two calls end at one place.
        """
        line, end_line, column, end_column = position
        found = self._calls.get((end_line or 0, end_column or 0), [])
        exact = [one for one in found if (one.lineno, one.col_offset) == (line, column)]
        calls = [one for one in found if isinstance(one, ast.Call)]
        return next(iter(exact or calls), None)

    def is_last(self, node: ast.AST) -> bool:
        """Whether the function, or the file, that an expression is in does nothing with its value but return it."""
        while isinstance(outer := self._outer[node], ast.expr):
            if not self._passes_on(outer, node):
                return False
            node = outer
        if not _keeps(outer):
            return False
        return self._is_end(outer, returns=isinstance(outer, ast.Return))

    @staticmethod
    def _passes_on(outer: ast.expr, inner: ast.AST) -> bool:
        if isinstance(outer, ast.Call):
            return inner in outer.args and (_is_loop(outer) or _name(outer.func) == "str")
        return isinstance(outer, ast.Await | ast.Attribute)

    def _is_end(self, statement: ast.AST, *, returns: bool) -> bool:
        """Whether nothing is done after a statement, nor on its way out."""
        while not isinstance(outer := self._outer[statement], (*_FUNCTIONS, ast.Module)):
            if isinstance(outer, ast.Try):
                in_body = statement in outer.body
                if not _is_idle(outer.finalbody) or (in_body and not all(map(_only_fails, outer.handlers))):
                    return False
                if in_body and not returns and not _is_idle(outer.orelse):
                    return False
            elif isinstance(outer, ast.For | ast.AsyncFor | ast.While):
                if not returns:
                    return False
            elif not isinstance(outer, ast.If | ast.ExceptHandler):
                return False
            found = self._after(outer, statement)
            if not returns and not _is_idle(found):
                return False
            returns = returns or any(isinstance(one, ast.Return) for one in found)
            if isinstance(outer, ast.If) and isinstance(self._outer[outer], ast.Module) and script.is_guard(outer.test):
                return True  # the file around it was read before
            statement = outer
        if isinstance(outer, _FUNCTIONS) and any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(outer)):
            return False
        return returns or _is_idle(self._after(outer, statement))

    @staticmethod
    def _after(outer: ast.AST, statement: ast.AST) -> list[ast.stmt]:
        """Return the statements that follow one in its block."""
        for field in ("body", "orelse", "finalbody"):
            block = getattr(outer, field, [])
            if statement in block:
                return block[block.index(statement) + 1 :]
        return []


@functools.lru_cache(maxsize=32)
def _parsed(file: Path, changed: int) -> _Tree:  # noqa: ARG001 - what it is kept by
    return _Tree(file.read_bytes(), str(file))


def _keeps(statement: ast.AST) -> bool:
    """Whether it does nothing with a value but keep it, or return it."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(one, _NAMED) for one in statement.targets)
    return isinstance(statement, ast.Expr | ast.Return) or (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, _NAMED)
    )


def _is_idle(statements: list[ast.stmt]) -> bool:
    """Whether these do nothing that anybody could notice."""
    for one in statements:
        if isinstance(one, ast.Return):
            return one.value is None or _is_plain(one.value)
        if not (isinstance(one, _DEFINES) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))):
            return False
    return True


def _is_plain(value: ast.expr) -> bool:
    """Whether it is a result as it is: a name, a constant, the text of one."""
    if isinstance(value, ast.Call):
        return _name(value.func) == "str" and len(value.args) == 1 and _is_plain(value.args[0])
    return isinstance(value, ast.Constant | ast.Name) or (isinstance(value, ast.Attribute) and _is_plain(value.value))


def _only_fails(handler: ast.ExceptHandler) -> bool:
    """Whether code for a kickoff that fails only says so, as the run does."""
    return all(
        isinstance(one, ast.Raise | ast.Pass)
        or (isinstance(one, ast.Return) and one.value is None)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and _name(one.value.func) in _FAILS)
        for one in handler.body
    )
