"""The browser's screen: a tree of checkpoints, the chosen one, and the commands for it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from textual import on, work
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.widgets import Button, Footer, Input, Static, Tree

from runner.cli.browser import wording
from runner.cli.browser.details import DetailsPane, Draft
from runner.cli.browser.dialogs import DiffScreen, Question, prune_question
from runner.cli.browser.fields import Fields
from runner.cli.browser.tree import CheckpointTree
from runner.client.checkpoints.commands import Command, CommandHandler
from runner.client.checkpoints.model import Branch, Checkpoint, Details, Source, everything, newest
from runner.client.checkpoints.tree import build
from runner.core.diff import compare, lines
from runner.core.errors import RunnerError
from runner.core.plain_text import bare

SETTLE = 0.04  #: seconds that the cursor must rest on a checkpoint before it is read
UNREAD = 32_000_000  #: bytes of checkpoints that are read for the tree: beyond that it is by time alone
BATCH = 20  #: read at a time: the tree is redrawn after each batch
LOOK_AGAIN = 1.0  #: seconds between looks at a place where checkpoints are being added


class _Plain(LineFilter):
    """Takes control characters out of each line that is drawn: stored text could command the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - textual's signature
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [segment if segment.control else segment._replace(text=bare(segment.text)) for segment in segments]


_PLAIN = _Plain()  # one, for lines are cached by the filters that they went through


class _Keys(Footer):
    """The line of keys. It stays as it is behind a question, where Textual would not lay out another one."""

    async def recompose(self) -> None:
        if self.screen.is_active:
            await super().recompose()


class Browser(App[Command]):
    """Ends with the command that is to be carried out once the screen is gone, or with None."""

    TITLE = "runner checkpoint"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "resume", "Resume"),
        Binding("f", "fork", "Fork"),
        Binding("d", "diff", "Diff"),
        Binding("m", "mark", "Mark"),
        Binding("i", "edit('inputs')", "Input"),
        Binding("o", "edit('outputs')", "Output"),
        Binding("x", "drop", "Drop"),
        Binding("p", "prune", "Prune"),
        Binding("f5,ctrl+r", "refresh", "Refresh", key_display="F5"),
        Binding("q", "leave", "Quit"),
    ]
    CSS = """
    #title { height: 1; padding: 0 1; background: $primary-darken-2; color: $text; }
    #body { height: 1fr; }
    #tree { width: 2fr; min-width: 32; max-width: 56; }
    #right { width: 3fr; }
    #buttons { height: 1; padding: 0 1; }
    #buttons Button { margin-right: 1; min-width: 10; }
    #status { height: auto; max-height: 3; padding: 0 1; color: $text-muted; background: $surface; }
    #status.bad { color: $error; }
    #status.good { color: $success; }
    """

    def __init__(
        self, source: Source, handler: CommandHandler, *, at: Checkpoint | None = None, said: str = ""
    ) -> None:
        super().__init__()
        self.source, self.handler = source, handler
        self.branches: Sequence[Branch] = ()
        self.details: Details | None = None
        self.drafts: dict[str, Draft] = {}
        self.marked: list[Checkpoint] = []
        self.progress: dict[str, str] = {}
        # Kept, not looked for: a question may lie over the screen they are on.
        self.heading = Static(id="title", markup=False)
        self.points = CheckpointTree(id="tree")
        self.pane = DetailsPane(id="details")
        self.status = Static(id="status", markup=False)
        self._at, self._said = at, said
        self._live = False
        self._filled = False
        self._warned = False

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's own filters, and the one that removes control characters."""
        return [*super().get_line_filters(), _PLAIN]

    def pop_screen(self) -> AwaitComplete:
        """Close a question, and update the line of keys behind it."""
        closed = super().pop_screen()
        self.refresh_bindings()
        return closed

    def compose(self) -> ComposeResult:
        """Title, tree, details, buttons, a line for messages, the keys."""
        yield self.heading
        with Horizontal(id="body"):
            yield self.points
            with Vertical(id="right"):
                yield self.pane
                with Horizontal(id="buttons"):
                    yield Button("Resume", id="resume", compact=True, action="app.resume")
                    yield Button("Fork", id="fork", compact=True, action="app.fork")
                    yield Button("Diff", id="diff-button", compact=True, action="app.diff")
        yield self.status
        yield _Keys(compact=True)

    def on_mount(self) -> None:
        """Read the checkpoints, and again while more are added."""
        self.points.focus()
        self.say(self._said or self.handler.refusal, "bad" if self._said else "")
        self.look()
        self.set_interval(LOOK_AGAIN, self._tick)

    @property
    def chosen(self) -> Checkpoint | None:
        """The checkpoint that the cursor is on."""
        found = self.points.chosen
        return found if isinstance(found, Checkpoint) else None

    def say(self, text: str, kind: str = "") -> None:
        """A line below; ``kind`` is "good", "bad" or nothing."""
        self.status.update(text)
        self.status.set_classes(kind)

    # -- reading

    @work(exclusive=True, group="list")
    async def look(self) -> None:
        """Reload the list."""
        try:
            branches = await asyncio.to_thread(self.source.branches)
            self._live = await asyncio.to_thread(self.source.live)
        except RunnerError as error:
            self.say(str(error), "bad")
            return
        kept = everything(branches)
        count = f"{wording.counted(len(branches), 'branch')}, {wording.counted(len(kept), 'checkpoint')}"
        self.heading.update(f"{self.source.title}   {count}")
        if self._filled and branches == self.branches:
            return
        self.branches = branches
        self.marked = [one for one in self.marked if one in kept]
        self.points.fill(build(branches), self._notes)
        if not kept:
            self.workers.cancel_group(self, "details")
            self.details = None
            self.pane.say("There are no checkpoints yet.", "there are no checkpoints yet")
        elif not self._filled or self.chosen not in kept:
            self.points.go_to(self._at if self._at in kept else newest(kept))
        self._filled = True
        self._survey(kept)

    @work(exclusive=True, group="survey")
    async def _survey(self, kept: Sequence[Checkpoint]) -> None:
        """Where the place does not tell at a glance what each checkpoint is of, find out how far the newest are."""
        unknown = [one for one in kept if one.complete and not one.task and one.id not in self.progress]
        unread, batch = UNREAD, list[Checkpoint]()
        for one in sorted(unknown, key=lambda one: one.created_at, reverse=True):
            unread -= one.size or 0
            if unread < 0:
                break
            batch.append(one)
            if len(batch) == BATCH:
                await self._find_out(batch)
                batch.clear()
        await self._find_out(batch)

    async def _find_out(self, batch: Sequence[Checkpoint]) -> None:
        def progress() -> dict[str, str]:
            found = {}
            for one in batch:
                with contextlib.suppress(RunnerError):
                    details = self.source.details(one)
                    done, total = details.progress
                    found[one.id] = f"{done}/{total}" if total else details.checkpoint.trigger
            return found

        self.progress |= await asyncio.to_thread(progress)
        for one in batch:
            self._relabel(one)

    def _tick(self) -> None:
        if self._live:
            self.look()

    @on(Tree.NodeHighlighted)
    def _highlighted(self, event: Tree.NodeHighlighted[Any]) -> None:
        if isinstance(event.node.data, Branch):
            self.workers.cancel_group(self, "details")  # what the cursor has left is not shown over it
            self.details = None
            self.pane.show_branch(event.node.data)
        elif event.node.data is not None:
            self._read(event.node.data)

    @work(exclusive=True, group="details")
    async def _read(self, checkpoint: Checkpoint) -> None:
        self.details = None
        await asyncio.sleep(SETTLE)
        try:
            details = await asyncio.to_thread(self.source.details, checkpoint)
        except RunnerError as error:
            self.pane.show_torn(checkpoint, str(error))
            return
        self.details = details
        self.pane.show_details(details, self.drafts.get(checkpoint.id, Draft()))

    # -- changes

    @on(Fields.Edited)
    def _edited(self, event: Fields.Edited) -> None:
        details = self.details
        if details is None:
            return
        checkpoint = details.checkpoint
        draft = self.drafts.setdefault(checkpoint.id, Draft())
        if event.fields.id == "inputs":
            texts, before = draft.inputs, wording.value_text(details.inputs[event.key])
            label = wording.input_label(event.key, event.text != before)
        else:
            task = next(task for task in details.tasks if task.key == event.key)
            texts, before = draft.outputs, task.to_edit
            label = wording.task_label(task, event.text != before)
        if event.text == before:
            texts.pop(event.key, None)
        else:
            texts[event.key] = event.text
        event.fields.relabel(event.key, label)
        self._relabel(checkpoint)
        self.refresh_bindings()
        self.say(f"changed: {draft.summary}; f forks with it" if draft else "")

    def _relabel(self, checkpoint: Checkpoint) -> None:
        self.points.relabel(checkpoint, self._notes(checkpoint))

    def _notes(self, checkpoint: Checkpoint) -> wording.Notes:
        return wording.Notes(
            mark="AB"[self.marked.index(checkpoint)] if checkpoint in self.marked else "",
            changed=bool(self.drafts.get(checkpoint.id)),
            progress=self.progress.get(checkpoint.id, ""),
        )

    def action_edit(self, what: str) -> None:
        """Go to the inputs or the outputs."""
        if self.details is not None:
            self.pane.go_to(what)

    def action_drop(self) -> None:
        """Drop the changes to the chosen checkpoint."""
        if self.chosen is not None and self.drafts.get(self.chosen.id):
            self._drop(self.chosen)
            self.say("the changes are discarded")

    def _drop(self, checkpoint: Checkpoint) -> None:
        self.drafts.pop(checkpoint.id, None)
        self._relabel(checkpoint)
        self.refresh_bindings()
        if self.details is not None and self.details.checkpoint.id == checkpoint.id:
            self.pane.show_details(self.details, Draft())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show what can be done now."""
        if action == "drop":
            return bool(self.chosen and self.drafts.get(self.chosen.id))
        return super().check_action(action, parameters)

    # -- acting

    def _startable(self, verb: str) -> Checkpoint | None:
        """The chosen checkpoint, if something can be done with it; else says why not."""
        if self.handler.refusal:
            self.say(self.handler.refusal, "bad")
        elif self.chosen is None:
            self.say(f"choose a checkpoint to {verb} from", "bad")
        elif not self.chosen.complete:
            self.say(f"{self.chosen.id} is torn: choose another one to {verb} from", "bad")
        else:
            return self.chosen
        return None

    def action_resume(self) -> None:
        """Resume from the chosen checkpoint, after a confirmation."""
        checkpoint = self._startable("resume")
        if checkpoint is None:
            return
        if self.drafts.get(checkpoint.id):
            self.say("resume takes no changes: f forks with them, x discards them", "bad")
            return
        newest_there = checkpoint == next(b for b in self.branches if b.name == checkpoint.branch).checkpoints[-1]

        def answered(answer: str | None) -> None:
            if answer is not None:
                self._execute(Command("resume", checkpoint))

        how = "What was completed by then is not run again."
        how = how if newest_there else "It resumes from its state at that point."
        text = f"From {checkpoint.id}\non {checkpoint.branch}\n{how}"
        self.push_screen(Question("Resume", text, "Resume"), answered)

    def action_fork(self) -> None:
        """A branch of its own from the chosen checkpoint, with the changes made to it."""
        checkpoint = self._startable("fork")
        if checkpoint is None:
            return
        draft = self.drafts.get(checkpoint.id, Draft())
        try:
            inputs = draft.values(self.details)
        except ValueError as error:
            self.say(str(error), "bad")
            return
        changes = (
            f"Changed: {draft.summary}." if draft else "Nothing is changed: press i or o to edit inputs or outputs."
        )
        field = Input(placeholder="branch name (generated if empty)", compact=True, id="branch")

        def answered(name: str | None) -> None:
            if name is not None:
                self._execute(Command("fork", checkpoint, name, inputs, dict(draft.outputs)))

        text = f"From {checkpoint.id}\non {checkpoint.branch}\n{changes}"
        self.push_screen(Question("Fork", text, "Fork", field=field), answered)

    @work(group="act")
    async def _execute(self, command: Command) -> None:
        self.say(f"{command.verb} …")
        try:
            if self.handler.leaves_screen:
                await asyncio.to_thread(self.handler.check, command)
                self.exit(command)
                return
            done = await asyncio.to_thread(self.handler.execute, command)
        except RunnerError as error:
            self.say(str(error), "bad")
            return
        self._drop(command.checkpoint)
        self.say(done, "good")
        self.look()

    def action_mark(self) -> None:
        """Mark the chosen checkpoint for a diff, or take its mark away; of three the first loses it."""
        chosen = self.chosen
        if chosen is None:
            self.say("choose a checkpoint to mark", "bad")
            return
        before = list(self.marked)
        self.marked = [one for one in before if one != chosen] if chosen in before else [*before, chosen][-2:]
        for one in {*before, *self.marked}:
            self._relabel(one)
        words = {
            0: "",
            1: "marked A: press d on another one to compare them",
            2: "marked A and B: press d to compare them",
        }
        self.say(words[len(self.marked)])

    def action_diff(self) -> None:
        """Compare the two marked ones; a marked one with the chosen; else the chosen with its parent."""
        chosen = self.chosen
        if len(self.marked) == 2:
            self._compare(*self.marked)
        elif chosen is None:
            self.say("choose a checkpoint to compare", "bad")
        elif self.marked and self.marked[0] != chosen:
            self._compare(self.marked[0], chosen)
        else:
            parent = next((one for one in everything(self.branches) if one.id == chosen.parent), None)
            if parent is None:
                self.say("its parent was pruned: press m to mark another one to compare it with", "bad")
            else:
                self._compare(parent, chosen)

    @work(exclusive=True, group="diff")
    async def _compare(self, a: Checkpoint, b: Checkpoint) -> None:
        try:
            sides = [(await asyncio.to_thread(self.source.details, one)).side() for one in (a, b)]
        except RunnerError as error:
            self.say(str(error), "bad")
            return
        self.push_screen(DiffScreen(lines(compare(*sides))))

    def action_prune(self) -> None:
        """Keep the newest few of the chosen branch, after a question."""
        item = self.points.chosen
        name = item.name if isinstance(item, Branch) else item.branch if item is not None else ""
        branch = next((one for one in self.branches if one.name == name), None)
        if branch is None:
            self.say("choose a branch to prune", "bad")
            return

        def answered(keep: str | None) -> None:
            if keep is not None:
                self._remove(branch, int(keep))

        self.push_screen(prune_question(branch), answered)

    @work(group="act")
    async def _remove(self, branch: Branch, keep: int) -> None:
        try:
            gone = await asyncio.to_thread(self.source.prune, keep, branch.name)
        except RunnerError as error:
            self.say(str(error), "bad")
            return
        self.say(f"{wording.counted(gone, 'checkpoint')} of {branch.name} removed", "good")
        self.look()

    def action_refresh(self) -> None:
        """Read the checkpoints again."""
        self.say("")
        self.look()

    def action_leave(self) -> None:
        """Quit; changes that were not forked are mentioned once."""
        if any(self.drafts.values()) and not self._warned:
            self._warned = True
            self.say("there are changes that were not forked: press q again to discard them", "bad")
            return
        self.exit(None)
