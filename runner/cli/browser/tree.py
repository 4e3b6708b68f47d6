"""The left pane: branches with their checkpoints, newest first, and forks under the checkpoint they start from."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from runner.cli.browser import wording
from runner.cli.browser.wording import Notes
from runner.client.checkpoints.model import Branch, Checkpoint
from runner.client.checkpoints.tree import BranchNode

Item: TypeAlias = Branch | Checkpoint


class CheckpointTree(Tree[Item]):
    """Fill it as often as needed: the cursor and what is folded stay."""

    DEFAULT_CSS = """
    CheckpointTree { padding: 0 1; background: $surface; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__("", id=id)
        self.show_root = False
        self.guide_depth = 2
        self._at: dict[str, TreeNode[Item]] = {}
        self._newest: dict[str, int] = {}

    @property
    def chosen(self) -> Item | None:
        """What the cursor is on."""
        return self.cursor_node.data if self.cursor_node is not None else None

    def fill(self, top: Sequence[BranchNode], notes: Callable[[Checkpoint], Notes]) -> None:
        """Show these, each with its notes."""
        folded = {key for key, node in self._at.items() if node.allow_expand and not node.is_expanded}
        before = _key(self.chosen)
        self.clear()
        self._at = {}
        self.root.expand()
        for node in top:
            self._add(self.root, node, notes, folded)
        if before in self._at:
            self.go_to(self._at[before].data)

    def _add(
        self, parent: TreeNode[Item], node: BranchNode, notes: Callable[[Checkpoint], Notes], folded: AbstractSet[str]
    ) -> None:
        key = _key(node.branch)
        newest = self._newest[node.branch.name] = node.branch.checkpoints[-1].created_at if node.checkpoints else 0
        here = self._at[key] = parent.add(wording.branch_label(node.branch), node.branch, expand=key not in folded)
        for one in reversed(node.checkpoints):
            point = one.checkpoint
            key = _key(point)
            self._at[key] = here.add(
                wording.checkpoint_label(point, newest, notes(point)),
                point,
                expand=bool(one.forks) and key not in folded,
                allow_expand=bool(one.forks),
            )
            for fork in one.forks:
                self._add(self._at[key], fork, notes, folded)
        for fork in node.forks:
            self._add(here, fork, notes, folded)

    def relabel(self, checkpoint: Checkpoint, notes: Notes) -> None:
        """Redraw one checkpoint."""
        node = self._at.get(_key(checkpoint))
        if node is not None:
            newest = self._newest[checkpoint.branch]
            node.set_label(wording.checkpoint_label(checkpoint, newest, notes))

    def go_to(self, item: Item | None) -> None:
        """Put the cursor on it, if it is there."""
        node = self._at.get(_key(item))
        if node is None:
            return
        above = node.parent
        while above is not None:
            above.expand()
            above = above.parent
        _ = self.last_line  # numbers the lines: the cursor goes by them
        self.move_cursor(node)
        self.call_after_refresh(self.scroll_to_node, node)


def _key(item: Item | None) -> str:
    if item is None:
        return ""
    return f"branch {item.name}" if isinstance(item, Branch) else f"checkpoint {item.branch} {item.id}"
