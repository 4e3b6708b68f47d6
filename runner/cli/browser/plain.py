"""Escapes stored text, so it cannot send control sequences to the terminal."""

from collections.abc import Sequence
from typing import TypeVar

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from runner.core.plain_text import bare

T = TypeVar("T")


class PlainApp(App[T]):
    """An app that takes control characters out of each line that it draws."""

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's own filters, and the one that removes control characters."""
        return [*super().get_line_filters(), _PLAIN]


class _Plain(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - textual's signature
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [segment if segment.control else segment._replace(text=bare(segment.text)) for segment in segments]


_PLAIN = _Plain()  # one, for lines are cached by the filters that they went through
