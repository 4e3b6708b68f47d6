"""Confirmation dialogs, and what is shown on top of the screen."""

from collections.abc import Callable, Iterable

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Input, Label, Static
from textual.widgets.button import ButtonVariant

from runner.cli.browser import wording
from runner.client.checkpoints.model import Branch


class Question(ModalScreen[str | None]):
    """A question with an optional line to fill in. Gives the line ("" without one), or None if it was left."""

    BINDINGS = [Binding("escape", "leave", "Cancel"), Binding("enter", "agree", "OK", show=False)]
    CSS = """
    Question { align: center middle; }
    Question > Vertical {
        width: 70; max-width: 94%; height: auto; max-height: 90%; padding: 1 2; background: $panel;
        border: round $primary;
    }
    Question .title { text-style: bold; margin-bottom: 1; }
    Question Static { height: auto; margin-bottom: 1; }
    Question Input { margin-bottom: 1; }
    Question Horizontal { height: auto; align-horizontal: right; }
    Question Button { margin-left: 2; }
    """

    def __init__(
        self,
        title: str,
        text: str,
        yes: str,
        *,
        field: Input | None = None,
        said: Callable[[str], str] | None = None,
        accepts: Callable[[str], bool] = lambda _: True,
        danger: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._text, self._yes, self._danger = title, text, yes, danger
        self._field, self._said, self._accepts = field, said, accepts  # what is said to what is in the field

    def compose(self) -> ComposeResult:
        """Title, text, line, two buttons."""
        with Vertical():
            yield Label(self._title, classes="title", markup=False)
            yield Static(self._text, id="text", markup=False)
            if self._field is not None:
                yield self._field
            with Horizontal():
                variant: ButtonVariant = "error" if self._danger else "primary"
                yield Button("Cancel", id="no", compact=True, action="screen.leave")
                yield Button(self._yes, id="yes", variant=variant, compact=True, action="screen.agree")

    def on_mount(self) -> None:
        """Focus the field, so that the person can answer at once."""
        (self._field or self.query_one("#yes", Button)).focus()

    def action_leave(self) -> None:
        """Close the dialog without doing anything."""
        self.dismiss(None)

    @on(Input.Changed)
    def _filled_in(self, event: Input.Changed) -> None:
        if self._said is not None:
            self.query_one("#text", Static).update(self._said(event.value))

    @on(Input.Submitted)
    def action_agree(self) -> None:
        """Give what is in the line, if that is an answer; also on Enter anywhere but on a button."""
        if self._field is None:
            self.dismiss("")
        elif self._accepts(self._field.value):
            self.dismiss(self._field.value.strip())


def prune_question(branch: Branch) -> Question:
    """How many of a branch's checkpoints to keep; says how many would go."""
    there = len(branch.checkpoints)

    def said(keep: str) -> str:
        if not keep.isdecimal():
            return "Enter a number, 0 or more."
        go = max(0, there - int(keep))
        return f"It holds {wording.counted(there, 'checkpoint')}. Keep how many? {go} would be deleted."

    field = Input(str(there), type="integer", compact=True, id="keep")
    title = f"Prune {wording.short_branch(branch.name, 50)}"
    return Question(title, said(str(there)), "Prune", field=field, said=said, accepts=str.isdecimal, danger=True)


class DiffScreen(ModalScreen[None]):
    """What differs between two checkpoints."""

    BINDINGS = [
        Binding("escape,q,d", "leave", "Close", key_display="esc"),
        Binding("down,j", "move('down')", "Down", show=False),
        Binding("up,k", "move('up')", "Up", show=False),
    ]
    CSS = """
    DiffScreen { align: center middle; }
    DiffScreen > Vertical { width: 100%; height: 100%; background: $surface; }
    DiffScreen VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    DiffScreen Static { height: auto; }
    """

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self._shown: Text = wording.diff_text(lines)

    def compose(self) -> ComposeResult:
        """Make the text, which can be scrolled."""
        with Vertical():
            with VerticalScroll(id="diff"):
                yield Static(self._shown, id="lines")
            yield Footer()

    def on_mount(self) -> None:
        """Focus the text, so that keys scroll it at once."""
        self.query_one("#diff").focus()

    def action_leave(self) -> None:
        """Close the dialog and return to the tree."""
        self.dismiss(None)

    def action_move(self, way: str) -> None:
        """Scroll by a line."""
        scroll = self.query_one("#diff", VerticalScroll)
        scroll.scroll_down() if way == "down" else scroll.scroll_up()
