"""Code of the author's that a framework calls beside the uses of its tools, such as hooks, and that runs again."""

import functools
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from runner.journal.current_journal import current_journal
from runner.journal.hook_scope import HookScope
from runner.journal.tool_context import TaskContexts


def runs_again(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn``, which may be async, as code that runs again when its task restarts.

    What it changes is not recorded with the tool uses beside it, nor with those that it makes itself.
    """
    if hasattr(fn, "runs_again"):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        with HookScope(_contexts) as scope, scope.at_work():
            return fn(*args, **kwargs)

    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await _stepwise(fn(*args, **kwargs))

    wrapped = functools.wraps(fn)(acall if inspect.iscoroutinefunction(fn) else call)
    wrapped.runs_again = True  # type: ignore[attr-defined]  # a mark on a function
    return wrapped


def _contexts() -> TaskContexts | None:
    found = current_journal()
    return TaskContexts.known(found[0]) if found is not None else None


@types.coroutine
def _stepwise(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine. While it waits, what changes is not its work."""
    step: Callable[[Any], Any] = coroutine.send
    given: Any = None
    with HookScope(_contexts) as scope:
        while True:
            try:
                with scope.at_work():
                    waits_for = step(given)
            except StopIteration as ended:
                return ended.value
            try:
                step, given = coroutine.send, (yield waits_for)
            except BaseException as error:
                step, given = coroutine.throw, error
