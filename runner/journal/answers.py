"""What people answer, as the journal has it."""

import json
from typing import Self


class Answer(str):
    """Its text. ``label`` is the one of the question's labels that they named themselves, so nobody has to guess it."""

    __slots__ = ("label",)

    label: str | None

    def __new__(cls, text: str, label: str | None = None) -> Self:  # noqa: D102
        found = super().__new__(cls, text)
        found.label = label
        return found

    @classmethod
    def load(cls, stored: str) -> Self:
        """The inverse of `dump`."""
        found = json.loads(stored)
        return cls(found["text"], found["label"]) if isinstance(found, dict) else cls(str(found))

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(str(self) if self.label is None else {"text": str(self), "label": self.label})
