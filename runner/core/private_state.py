"""Public access to a pydantic model's private state."""

import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


class Private(property, Generic[T]):
    """A private attribute of a model under a public name: `PrivateAttr` only takes names with an underscore."""

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(attrgetter(name), lambda model, value: setattr(model, name, value), doc=doc)

    if TYPE_CHECKING:

        def __get__(self, model: Any, owner: type | None = None, /) -> T: ...  # type: ignore[override]  # a property of a model gives its value also to mypy
        def __set__(self, model: Any, value: T, /) -> None: ...


class Link:
    """A back reference (agent to crew, task to crew) that is ignored in comparisons."""

    __slots__ = ("to",)

    def __init__(self, to: Any = None) -> None:
        self.to = to

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Link)

    __hash__ = None  # type: ignore[assignment]  # Python's own way to say that it has no hash

    def __deepcopy__(self, memo: dict[int, Any]) -> "Link":
        return Link(copy.deepcopy(self.to, memo))


class Linked(property):
    """The target of a private `Link` under a public name."""

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(attrgetter(f"{name}.to"), lambda model, to: setattr(model, name, Link(to)), doc=doc)
