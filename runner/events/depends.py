"""Handlers that depend on others, and the order in which an event's handlers are called."""

from collections.abc import Iterable, Mapping, Sequence

from runner.events.dispatch import Handler, name_of

__all__ = ["CircularDependencyError", "Depends", "build_execution_plan"]


class Depends:
    """A handler that is called first: ``@event_bus.on(TaskCompletedEvent, depends_on=Depends(first))``."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def __repr__(self) -> str:
        return f"Depends({name_of(self.handler)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Depends) and self.handler is other.handler

    def __hash__(self) -> int:
        return hash(self.handler)


class CircularDependencyError(ValueError):
    """Handlers depend on each other, so none of them could be called."""

    def __init__(self, handlers: Sequence[Handler]) -> None:
        names = ", ".join(name_of(one) for one in handlers[:5])
        super().__init__(f"Circular dependency detected in event handlers: {names}")
        self.handlers = list(handlers)


def build_execution_plan(
    handlers: Iterable[Handler], dependencies: Mapping[Handler, Sequence[Depends]]
) -> list[list[Handler]]:
    """Return the handlers in groups: those of a group run concurrently, after the group before it.

    Dependencies on other handlers are ignored. Raises `CircularDependencyError`.
    """
    left = list(handlers)
    steps: list[list[Handler]] = []
    while left:
        step = [one for one in left if not any(known.handler in left for known in dependencies.get(one, ()))]
        if not step:
            raise CircularDependencyError(left)
        steps.append(step)
        left = [one for one in left if one not in step]
    return steps
