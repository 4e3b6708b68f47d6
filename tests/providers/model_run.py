"""What the model holds of a run: its branches, what each sees of the others, and what a change touches."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import Used

Place = tuple[str, str, str]  #: run, branch, task


@dataclass
class Task:
    """A task in flight."""

    state: str = "queued"
    attempt: int = 1
    token: int | None = None
    worker: str = ""
    process: str = ""
    nonce: str = ""
    begun: int = 0
    crashes: int = 0
    handed: int = 0
    got: dict[int, int] = field(default_factory=dict)  #: how far each attempt, by its token
    reached: int = 0  #: and the furthest
    failures: int = 0
    started: bool = False
    copies: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A named position: what is known of it but for its id."""

    seq: int
    trigger: str
    task: str


@dataclass
class Branch:
    """One line of history. ``checkpoints`` are all there ever were; journals hold what was recorded and not dropped."""

    parent: str = ""
    parent_seq: int = 0
    head: str = ""
    seq: int = 0
    status: str = "running"
    todo: frozenset[str] | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    used: dict[str, Used] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    journals: dict[str, dict[str, str]] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)


@dataclass(eq=False)
class Run:
    """A run, with the options it was created with."""

    id: str
    plan: Plan
    queue: str
    relayed: bool
    bundle: str
    triggers: frozenset[str]
    most: int
    created_at: int  #: in ms
    branch: str = "main"
    branches: dict[str, Branch] = field(default_factory=lambda: {"main": Branch()})
    counters: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("paid", "replayed", "in_doubt", "recoveries", "prompt_tokens", "completion_tokens"), 0
        )
    )
    tokens: int = 0

    def seen(self, name: str, upto: float = float("inf")) -> dict[str, str]:
        """The branch that gave each output that a branch sees: itself, or one it left, but for what it does again."""
        branch = self.branches[name]
        found = self.seen(branch.parent, min(upto, branch.parent_seq)) if branch.parent else {}
        found = {key: where for key, where in found.items() if key not in (branch.todo or ())}
        return found | {key: name for key, (seq, _, _) in branch.outputs.items() if seq <= upto}

    def committed(self, name: str, upto: float = float("inf")) -> dict[str, str]:
        """The outputs that a branch sees."""
        return {key: self.branches[where].outputs[key][2] for key, where in self.seen(name, upto).items()}

    def todo(self, name: str) -> frozenset[str]:
        """What a branch does itself."""
        todo = self.branches[name].todo
        return frozenset(self.plan.by_key) if todo is None else todo & self.plan.by_key.keys()

    def ready(self, name: str) -> list[PlannedTask]:
        """What may run there: not done, and nothing that it comes after, however far, is to be done before."""
        left = self.todo(name) - self.branches[name].outputs.keys()
        return [t for t in self.plan.tasks if t.key in left and left.isdisjoint(self.plan.earlier(t.key))]

    def touched(self, name: str, upto: float, edits: Set[str], inputs: Set[str]) -> set[str]:
        """Of what is done there, what used one of these, or what used what used one of these."""
        seen = self.seen(name, upto)
        changed = set(edits)
        while True:
            more = set()
            for key in seen.keys() & self.plan.by_key.keys() - changed:
                used = self.branches[seen[key]].used[key]
                if used.edited:
                    continue
                read = set(self.plan.by_key[key].context or ()) | used.tasks
                if "*" in read:
                    read |= set(self.plan.earlier(key))
                if read & changed or used.inputs & inputs or ("*" in used.inputs and inputs):
                    more.add(key)
            if not more:
                return changed - edits
            changed |= more

    @property
    def status(self) -> str:
        """That of its current line."""
        return self.branches[self.branch].status

    @property
    def live(self) -> int:
        """How many of its branches run."""
        return sum(branch.status == "running" for branch in self.branches.values())

    def goes_on(self, name: str) -> bool:
        """Whether work on this branch unlocks more. Several may go on side by side."""
        return self.branches[name].status == "running"


@dataclass
class Worker:
    """A registered worker and what it holds: place -> token, process, deadline."""

    about: str
    lapses_at: int
    claims: dict[Place, tuple[int, str, int]] = field(default_factory=dict)
