"""People's answers, as recorded in the journal."""

import json
from typing import Self


class Answer(str):
    """Its text. ``label`` is the one of the question's labels that they named themselves, so it need not be guessed."""

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
        """As JSON: a text, which workers before labels were known can read. So many blanks after it are of the label.

        What is named stands first in the text.
        """
        label = self.label if self.label and self.startswith(self.label) else ""
        return json.dumps(str(self)) + " " * len(label)
