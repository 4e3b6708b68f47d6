"""A public name for what a pydantic model keeps beside its fields."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


class Private(property, Generic[T]):
    """A private attribute of a model by its public name: `PrivateAttr` takes only names with an underscore."""

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(attrgetter(name), lambda model, value: setattr(model, name, value), doc=doc)

    if TYPE_CHECKING:

        def __get__(self, model: Any, owner: type | None = None, /) -> T: ...  # type: ignore[override]
        def __set__(self, model: Any, value: T, /) -> None: ...
