"""While code of the author's that runs again, such as a hook, is at work beside tool uses."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from typing import Any, Protocol


class Contexts(Protocol):
    """The objects that tools of a task in flight may change (`runner.journal.tool_context.TaskContexts`)."""

    def pause(self) -> Any:
        """What changes from here on is not the work of the uses in progress, but for those around this."""

    def go_on(self, paused: Any) -> None:
        """What changes from here on is their work again."""


class HookScope:
    """A call of a hook, which the framework makes again when the task restarts.

    What it changes is the work of the tool uses around it: not of those beside it, nor of one that it makes itself. It
    is open as a context, in which `at_work` is entered each time that it continues.
    """

    def __init__(self, contexts: Callable[[], Contexts | None]) -> None:
        self._find_contexts = contexts
        self._thread = 0  # in which it is at work
        self._paused: tuple[Contexts, Any] | None = None

    def __enter__(self) -> "HookScope":
        self._outer = hook_scope.get()
        if self._outer is not None:
            self._outer.stop()
        self._token: Token[HookScope | None] = hook_scope.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ValueError):  # a coroutine that is thrown away ends elsewhere
            hook_scope.reset(self._token)
        if self._outer is not None:
            self._outer.go_on()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """It is at work, until it ends or waits for something."""
        self._thread = threading.get_ident()
        self.go_on()
        try:
            yield
        finally:
            self.stop()
            self._thread = 0

    def go_on(self) -> None:
        """Where it is at work, a tool use or another hook inside of it is over."""
        if self._paused is None and self._thread == threading.get_ident() and hook_scope.get() is self:
            contexts = self._find_contexts()
            self._paused = None if contexts is None else (contexts, contexts.pause())

    def stop(self) -> None:
        """Where it is at work, a tool use or another hook begins inside of it."""
        if self._paused is not None and self._thread == threading.get_ident():
            contexts, paused = self._paused
            self._paused = None
            contexts.go_on(paused)


hook_scope: ContextVar[HookScope | None] = ContextVar("runner_hook_scope", default=None)
"""The hook that is at work here; None in a tool use that it makes."""
