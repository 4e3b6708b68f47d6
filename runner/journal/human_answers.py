"""People's answers, as recorded in the journal."""

import json
from typing import Self


class Answer(str):
    """A person's answer. ``label`` is the question's label that they named, so that no model has to choose."""

    __slots__ = ("label",)

    label: str | None

    def __new__(cls, text: str, label: str | None = None) -> Self:  # noqa: D102 - the class says it
        found = super().__new__(cls, text)
        found.label = label
        return found

    @classmethod
    def load(cls, stored: str) -> Self:
        """The inverse of `dump`."""
        text = str(json.loads(stored))
        return cls(text, text[: len(stored) - len(stored.rstrip(" "))] or None)

    def dump(self) -> str:
        """Return it as JSON: a text, which workers that do not know labels can read.

        A named label comes first in it, and the number of blanks at the end is the label's length.
        """
        label = self.label if self.label and self.startswith(self.label) else ""
        return json.dumps(str(self)) + " " * len(label)
