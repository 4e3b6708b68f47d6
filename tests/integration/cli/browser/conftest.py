"""The screen on made-up checkpoints, driven by keys as a person would."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.pilot import Pilot, WaitForScreenTimeout
from textual.worker import WorkerCancelled

from runner.cli.browser.app import Browser
from runner.cli.browser.details import Draft
from runner.client.checkpoints.commands import Command
from runner.client.checkpoints.model import Branch, Checkpoint, Details, EntityView, TaskView, everything
from runner.client.checkpoints.tree import grouped
from runner.core.diff import DONE, PENDING
from runner.core.errors import Conflict
from runner.providers.base import CheckpointTorn

WITHIN = 60.0  #: seconds for all that one key brings about
DAY = 1_752_000_000_000
TASKS = ("collect", "sort", "write", "review")
TEXTS = ("owls, hens and geese", "geese\nhens\nowls", "Once upon a time\nthere were geese.", "good")


def made(number: int, branch: str = "main", after: str = "", **more: Any) -> Checkpoint:
    """One checkpoint of many; ids tell their order."""
    stamp = f"20260715T{10 + number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}"
    task = TASKS[min(number, len(TASKS)) - 1] if number else ""
    values: dict[str, Any] = {
        "created_at": DAY + number * 1000, "size": 1000 + number, "trigger": "task_completed", "task": task, **more,
    }  # fmt: skip
    return Checkpoint(f"{stamp}_{number:08x}", branch, after, **values)


def line(numbers: Sequence[int], branch: str = "main", after: str = "") -> list[Checkpoint]:
    """Checkpoints in a row."""
    found: list[Checkpoint] = []
    for number in numbers:
        found.append(made(number, branch, found[-1].id if found else after))
    return found


@dataclass
class FakeSource:
    """Checkpoints in a list."""

    kept: list[Checkpoint] = field(default_factory=list)
    title: str = "./.checkpoints  JSON files"
    where: str = "./.checkpoints"
    growing: bool = False
    asked: list[Any] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=lambda: {"topic": "birds", "count": 3, "style": {"tone": "dry"}})

    def branches(self) -> list[Branch]:
        return grouped(self.kept)

    def live(self) -> bool:
        return self.growing

    def details(self, checkpoint: Checkpoint) -> Details:
        if not checkpoint.complete:
            raise CheckpointTorn(f"{checkpoint.id} is torn: it ends in the middle of a line")
        done = int(checkpoint.id[-8:], 16) % 100
        tasks = tuple(
            TaskView(key, DONE if i < done else PENDING, text if i < done else None, agent="reporter" if i else "")
            for i, (key, text) in enumerate(zip(TASKS, TEXTS, strict=True))
        )
        entity = EntityView("crew", "barnyard", min(done, 4), 4)
        return Details(checkpoint, (entity,), self.inputs, tasks, version="0.1.0", events=7)

    def prune(self, keep: int, branch: str) -> int:
        self.asked.append(("prune", keep, branch))
        on = [one for one in self.kept if one.branch == branch]
        going = on[: len(on) - keep]
        self.kept = [one for one in self.kept if one not in going]
        return len(going)


@dataclass
class FakeHandler:
    """Notes what it is told to do."""

    refusal: str = ""
    leaves_screen: bool = False
    commands: list[Command] = field(default_factory=list)
    fails: str = ""

    def check(self, command: Command) -> None:
        if self.fails:
            raise Conflict(self.fails)

    def execute(self, command: Command) -> str:
        self.check(command)
        self.commands.append(command)
        return f"done: {command.verb} {command.branch}".rstrip()


@dataclass
class Screen:
    """A running screen, and what a person sees of it."""

    app: Browser
    pilot: Pilot

    async def settle(self) -> None:
        """Until nothing is being read, and nothing more is drawn. Raises `TimeoutError` with what is there instead."""
        before, rows = [""], list[str]()
        until = time.monotonic() + WITHIN
        while self._is_due() or (rows := self.rows) != before:
            if time.monotonic() > until:
                raise TimeoutError("\n".join([f"not settled: {list(self.app.workers)}", *before, "now:", *self.rows]))
            before = rows
            with contextlib.suppress(WorkerCancelled):  # another look took its place
                await self.app.workers.wait_for_complete()
            await _all_is_processed(self.pilot, WITHIN)
            self.app.screen._on_timer_update()
            if self.app.return_value is not None or not self.app.is_running:
                return

    def _is_due(self) -> bool:
        """Whether something is being read, or is to be called after the next drawing, as the row of keys is made."""
        screen = self.app.screen
        return bool(len(self.app.workers) or screen._callbacks or screen._next_callbacks)

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, each once what the one before brought about is there."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def click(self, where: str) -> None:
        """Click on it, once it is where it will be, and wait for what that brings about."""
        while not await self.pilot.click(where):
            await self.settle()
        await self.settle()

    async def type(self, text: str) -> None:
        """Write text."""
        await self.pilot.press(*(" " if c == " " else c for c in text))
        await self.settle()

    async def choose(self, checkpoint: Checkpoint) -> None:
        """Put the cursor on one."""
        self.app.points.go_to(checkpoint)
        await self.settle()
        assert self.app.chosen == checkpoint

    @property
    def rows(self) -> list[str]:
        """What is on the screen, row by row, drawn as the application does it: with what is behind a question."""
        visible_screen_stack.set(self.app._background_screens)
        return [
            "".join(segment.text for segment in strip).rstrip() for strip in self.app.screen._compositor.render_strips()
        ]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.rows)

    @property
    def status(self) -> str:
        """The line for messages."""
        return str(self.app.status.render())

    def draft(self, checkpoint: Checkpoint) -> Draft:
        """The changes made to it."""
        return self.app.drafts.get(checkpoint.id, Draft())


Story = Callable[[Screen], Awaitable[None]]


async def _at_once(*_: float) -> None:
    """In place of Textual's wait until the process uses little time: on a busy machine it is given little."""


async def _all_is_processed(pilot: Pilot, timeout: float = 30.0) -> bool:
    """Until every widget waits for a message, and nothing is about to run, however busy the machine is.

    In place of Textual's, which sends a message to each widget and waits for all of them: most of what these tests did.
    """
    app, loop, until = pilot.app, asyncio.get_running_loop(), time.monotonic() + timeout
    while app.is_running and not app._exception_event.is_set():
        if not loop._ready:
            pumps = [app, *(one for screen in app.screen_stack for one in screen.walk_children(with_self=True))]
            if all(map(_is_idle, pumps)):
                return True
        if time.monotonic() > until:
            raise WaitForScreenTimeout(f"still at work: {app.screen_stack}")
        await asyncio.sleep(0 if loop._ready else 0.001)
    return False


def _is_idle(pump: MessagePump) -> bool:
    messages = pump._message_queue
    return pump._closing or pump._closed or (messages.empty() and bool(messages.ready_event._waiters))


_parse_rules = Stylesheet._parse_rules
_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}


def _parsed_once(stylesheet: Stylesheet, *given: Any, **named: Any) -> list[RuleSet]:
    """Rules that an application before had as well, with the same colours, are not parsed again for the next one."""
    key = (*given, *named.items(), *stylesheet._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(stylesheet, *given, **named)
    return _parsed[key]


def _drawn_for_nobody(compositor: Compositor, **_: Any) -> None:
    """In place of drawing each change for a terminal, of which there is none: `Screen.rows` draws what is looked at."""
    compositor._dirty_regions.clear()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch):
    """Runs a story on a screen of a size; gives the command with which the screen ended."""
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", _at_once)
    monkeypatch.setattr(Pilot, "_wait_for_screen", _all_is_processed)
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parsed_once)
    monkeypatch.setattr(Compositor, "render_update", _drawn_for_nobody)

    def run(story: Story, source: Any, handler: Any = None, size: tuple[int, int] = (80, 24)) -> Command | None:
        app = Browser(source, handler or FakeHandler())
        app.animation_level = "none"

        async def main() -> None:
            async with app.run_test(size=size) as pilot:
                screen = Screen(app, pilot)
                await screen.settle()
                await story(screen)

        asyncio.run(main())
        return app.return_value

    return run


@pytest.fixture
def source() -> FakeSource:
    """Four checkpoints on main; a fork of the second with two, and a fork of that."""
    main = line([1, 2, 3, 4])
    fork = line([102, 103], f"fork/{main[1].id}_a1b2c3", main[1].id)
    return FakeSource([*main, *fork, *line([203], "again", fork[0].id)])


@pytest.fixture
def fakes() -> Any:
    """The makers, for test files (which cannot import this one)."""
    from types import SimpleNamespace

    return SimpleNamespace(
        FakeSource=FakeSource, FakeHandler=FakeHandler, made=made, line=line, everything=everything, replace=replace
    )
