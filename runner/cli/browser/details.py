"""The right pane: the chosen checkpoint, with inputs and outputs to edit."""

import json
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static, TabbedContent, TabPane

from runner.cli.browser import wording
from runner.cli.browser.fields import Fields, Row
from runner.client.checkpoints.model import Branch, Checkpoint, Details
from runner.core.diff import DONE

LISTED = 200  #: tasks on the first tab; all of them are on the third


@dataclass
class Draft:
    """Changes to a checkpoint that are not forked yet: texts by input and by task."""

    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)

    @property
    def summary(self) -> str:
        """What is changed, by name."""
        parts = [f"input {name}" for name in self.inputs] + [f"output of {task}" for task in self.outputs]
        return ", ".join(parts)

    def values(self, details: Details | None) -> dict[str, Any]:
        """The changed inputs as values. Raises ValueError where something is to be JSON and is not."""
        if not self:
            return {}
        if details is None:
            raise ValueError("the checkpoint is still being read: try again")
        for task in details.tasks:
            if task.is_json and task.key in self.outputs:
                _as_json(self.outputs[task.key], f"the output of {task.key}")
        return {
            name: text if isinstance(details.inputs[name], str) else _as_json(text, f"input {name}")
            for name, text in self.inputs.items()
        }


def _as_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None


class DetailsPane(Vertical):
    """Three tabs: the checkpoint, its inputs, its tasks' outputs."""

    DEFAULT_CSS = """
    DetailsPane { height: 1fr; }
    DetailsPane TabbedContent { height: 1fr; }
    DetailsPane TabPane { padding: 0 1; height: 1fr; }
    DetailsPane ContentSwitcher { height: 1fr; }
    DetailsPane VerticalScroll { scrollbar-size-vertical: 1; }
    DetailsPane #about { height: auto; }
    """

    def compose(self) -> ComposeResult:
        """Make the tabs."""
        with TabbedContent(id="tabs"):
            with TabPane("Checkpoint", id="tab-about"), VerticalScroll():
                yield Static(id="about", markup=False)
            with TabPane("Inputs", id="tab-inputs"):
                yield Fields(id="inputs")
            with TabPane("Outputs", id="tab-outputs"):
                yield Fields(id="outputs")

    def say(self, text: RenderableType, nothing: str) -> None:
        """Show a text only."""
        self.query_one("#about", Static).update(text)
        for name in ("inputs", "outputs"):
            self.query_one(f"#{name}", Fields).show([], nothing)

    def show_branch(self, branch: Branch) -> None:
        """Show a branch."""
        self.say(wording.of_branch(branch), "choose a checkpoint")

    def show_torn(self, checkpoint: Checkpoint, why: str) -> None:
        """Show one that cannot be read."""
        self.say(Group(wording.of_checkpoint(checkpoint), "", Text(why, style="red")), "there is nothing to read")

    def show_details(self, details: Details, draft: Draft) -> None:
        """Show a checkpoint, with the changes made to it so far."""
        done, total = details.progress
        tasks = [wording.task_label(task, task.key in draft.outputs) for task in details.tasks[:LISTED]]
        if len(details.tasks) > LISTED:
            tasks.append(Text(f"… and {len(details.tasks) - LISTED} more, under Outputs", style="dim"))
        parts: list[RenderableType] = [wording.of_checkpoint(details.checkpoint, details), ""]
        if details.entities:
            parts += [wording.entities(details), ""]
        if total:
            parts += [wording.progress(done, total), *tasks]
        if details.state:
            parts += ["", wording.facts({name: wording.value_text(value) for name, value in details.state.items()})]
        self.query_one("#about", Static).update(Group(*parts))
        inputs = [
            Row(
                name, wording.input_label(name, name in draft.inputs), draft.inputs.get(name, wording.value_text(value))
            )
            for name, value in details.inputs.items()
        ]
        outputs = [
            Row(
                task.key,
                wording.task_label(task, task.key in draft.outputs),
                draft.outputs.get(task.key, task.to_edit),
                task.status == DONE and task.editable,
            )
            for task in details.tasks
        ]
        self.query_one("#inputs", Fields).show(inputs, "this checkpoint has no inputs")
        self.query_one("#outputs", Fields).show(outputs, "this checkpoint has no tasks")

    def go_to(self, tab: str) -> None:
        """Open a tab and put the focus in it."""
        self.query_one("#tabs", TabbedContent).active = f"tab-{tab}"
        options = self.query_one(f"#{tab} OptionList")
        self.call_after_refresh(options.focus)
