"""A list of names, with an editor for the text of the chosen one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option


@dataclass(frozen=True, slots=True)
class Row:
    """One entry: how it is listed, the text behind it, and whether that can be edited."""

    key: str
    label: Text
    text: str
    editable: bool = True


class Editor(TextArea):
    """Text; Escape leaves it. While a person writes, a letter is a letter: it says that Escape comes first."""

    BINDINGS = [Binding("escape", "leave", "Done editing")]

    def on_focus(self) -> None:
        """Show how to leave the field."""
        self.border_title = "" if self.read_only else "esc first, then f forks and r resumes"

    def on_blur(self) -> None:
        """Remove the hint of how to leave the field."""
        self.border_title = ""

    def action_leave(self) -> None:
        """Return to the tree."""
        self.screen.query_one("#tree").focus()


class Fields(Vertical):
    """Names on top, the chosen one's text below. Posts `Edited` when a person changes a text."""

    DEFAULT_CSS = """
    Fields { height: 1fr; }
    Fields OptionList {
        height: auto; max-height: 50%; border: none; padding: 0; background: transparent; scrollbar-size-vertical: 1;
        &:focus { border: none; background-tint: transparent; }
    }
    Fields Editor {
        height: 1fr; border: none; border-top: solid $primary-darken-2; padding: 0; scrollbar-size: 1 1;
        &:focus { border: none; border-top: solid $accent; }
    }
    Fields .empty { padding: 0 1; color: $text-muted; }
    """

    @dataclass
    class Edited(Message):
        """A text was changed."""

        fields: "Fields"
        key: str
        text: str

        @property
        def control(self) -> "Fields":
            """The sender, by which handlers select."""
            return self.fields

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: dict[str, Row] = {}
        self._chosen = ""

    def compose(self) -> ComposeResult:
        """A line for when there is nothing, the list, the editor."""
        yield Static(classes="empty", markup=False)
        yield OptionList(markup=False)
        yield Editor(soft_wrap=True)

    def show(self, rows: Sequence[Row], nothing: str) -> None:
        """Show other rows; the chosen one stays chosen if it is still there. Without rows: ``nothing``."""
        self._rows = {row.key: row for row in rows}
        options, editor, empty = self.query_one(OptionList), self.query_one(Editor), self.query_one(".empty", Static)
        empty.update(nothing)
        empty.display, options.display, editor.display = not rows, bool(rows), bool(rows)
        keys = list(self._rows)
        with self.prevent(OptionList.OptionHighlighted):
            options.set_options([Option(row.label) for row in rows])
            if rows:
                options.highlighted = keys.index(self._chosen) if self._chosen in keys else 0
        if options.highlighted is not None:
            self._open(keys[options.highlighted])

    def relabel(self, key: str, label: Text) -> None:
        """List a row in other words; its text stays as the person has it."""
        if key in self._rows:
            self.query_one(OptionList).replace_option_prompt_at_index(list(self._rows).index(key), label)

    def _open(self, key: str) -> None:
        self._chosen = key
        row, editor = self._rows[key], self.query_one(Editor)
        if editor.text != row.text:
            with self.prevent(TextArea.Changed):
                editor.text = row.text
        editor.read_only = not row.editable
        editor.show_cursor = row.editable

    @on(OptionList.OptionHighlighted)
    def _chose(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._open(list(self._rows)[event.option_index])

    @on(OptionList.OptionSelected)
    def _entered(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.query_one(Editor).focus()

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        event.stop()
        row, text = self._rows.get(self._chosen), event.text_area.text
        if row is None or not row.editable or text == row.text:
            return
        self._rows[self._chosen] = replace(row, text=text)
        self.post_message(self.Edited(self, row.key, text))
