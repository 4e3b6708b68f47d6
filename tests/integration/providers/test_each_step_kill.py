"""Wherever a process dies, or is stopped, what it did and did not record is in doubt: never too little."""

import random
from typing import Any

import pytest
from redis import Redis

from runner.core.errors import Interrupted
from runner.core.ledger import NO_TOKENS, STEP, AccountKey
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.redis import keys

from .driver import Driver
from .test_reserved import Scene

GPT, TOOL = AccountKey("model", "A", "gpt"), AccountKey("tool", "", "t")


def in_doubt(scene: Scene, redis: Redis) -> int:
    """With the uses of tools."""
    return scene.in_doubt + int(redis.hget(keys.run_key(scene.run), "tools_in_doubt") or 0)


@pytest.mark.parametrize("entry", [STEP, GPT, TOOL])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("error", [UnicodeEncodeError, Interrupted])
def test_what_was_done_and_is_not_recorded_is_in_doubt(
    driver: Driver, redis: Redis, entry: AccountKey, together: bool, error: type[BaseException]
) -> None:
    # Given steps of which each reserves the note of the next
    scene = Scene(driver)
    for name in ("one", "two"):
        scene.task.begin_step(entry)
        scene.task.record_step(name, "1", replayed=0, entry=entry)
    # When one is done, and its record fails before it leaves: its name is no text, or its thread is stopped there
    scene.task.begin_step(entry)
    name = "\ud800" if error is UnicodeEncodeError else "three"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(error):  # noqa: PT012 - by one way or the other
        if error is Interrupted:
            patch.setattr(driver.line, "ask", stopped)
            patch.setattr(driver.line, "ask_all", stopped)
        if together:
            scene.task.record_steps([DoneStep(name, "1", entry)], replayed=0)
        else:
            scene.task.record_step(name, "1", replayed=0, entry=entry)
    scene.task.fail("a step could not be recorded", replayed=0)
    assert in_doubt(scene, redis) == 1


def stopped(*_: Any) -> None:
    raise Interrupted("stop")


class Killed(BaseException):
    """The process is dead."""


class Doomed(Scene):
    """A process that does at random what a task with threads does, and dies at the place of that number: one is before
    and after each command, and each word that it says of its calls."""

    def __init__(self, driver: Driver, chance: random.Random, kinds: list[AccountKey], place: int) -> None:
        self._chance, self._kinds, self._left = chance, kinds, 0
        self.under_way: dict[str, AccountKey] = {}  #: what it does; a call, from when it leaves
        super().__init__(driver)
        line = driver.line
        for name in ("ask", "ask_all", "send_nowait", "post"):
            setattr(line, name, self._passing(getattr(line, name)))
        self._left = place

    def _say(self, text: str) -> None:
        self._passing(super()._say)(text)

    def _passing(self, do: Any) -> Any:
        def passed(*given: Any) -> Any:
            self._pass()
            answer = do(*given)
            self._pass()
            return answer

        return passed

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed

    def live(self) -> None:
        """Until it dies."""
        try:
            while True:
                self._do(self._chance.random())
        except Killed:
            del self.driver.line.ask, self.driver.line.send_nowait, self.driver.line.post

    def _do(self, what: float) -> None:
        names = list(self.under_way)
        if not names or (what < 0.5 and len(names) < 3):
            kinds = [self._chance.choice(self._kinds) for _ in range(2 if what < 0.1 else 1)]
            self.task.begin_steps([BegunStep(kind, (), kind != STEP) for kind in kinds])
            begun = [(f"{self.steps + more}", kind) for more, kind in enumerate(kinds, 1)]
            self.steps += len(kinds)
            self.under_way |= {name: kind for name, kind in begun if kind == STEP}
            for name, kind in begun:
                if kind != STEP:
                    self.task.mark_sent(kind)
                    self.under_way[name] = kind
        elif what < 0.85:
            name = self._chance.choice(names)
            kind = self.under_way[name]
            if self._chance.random() < 0.5:
                self.task.record_step(name, "1", replayed=0, entry=kind)
            else:  # its acknowledgement is waited for now, or by what is written next
                settle = self.task.post_step(name, "1", replayed=0, entry=kind, usage=NO_TOKENS, reported=True)
                if self._chance.random() < 0.5:
                    settle()
            del self.under_way[name]
        elif what < 0.92:
            done = [DoneStep(name, "1", self.under_way[name]) for name in names]
            if self._chance.random() < 0.5:
                self.task.record_steps(done, replayed=0)
            else:  # one more begins with it, as of a map
                begins = [BegunStep()] if STEP in self._kinds else []
                settle = self.task.post_steps(done, dropped=0, begins=begins, replayed=0)
                assert settle is not None
                if begins or self._chance.random() < 0.5:
                    settle()
                for _ in begins:
                    self.steps += 1
                    self.under_way[f"{self.steps}"] = STEP
            for name in names:
                del self.under_way[name]
        else:
            self.task.drop_step(self.under_way.pop(self._chance.choice(names)))


@pytest.mark.parametrize("kinds", [[STEP], [GPT], [TOOL], [STEP, GPT, TOOL]], ids=["steps", "calls", "tools", "all"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_kill_leaves_in_doubt_all_that_is_not_recorded(
    driver: Driver, redis: Redis, kinds: list[AccountKey], seen: bool
) -> None:
    """Whether what the process said of its calls can be read, or not."""
    for place in range(1, 60):
        redis.flushdb()
        driver.workers.beat("w0", 5000, "{}")
        scene = Doomed(driver, random.Random(place), kinds, place)
        scene.live()
        journal = keys.key("journal_key", branch_key=keys.branch_key(scene.run, "main"), name="a")
        recorded = redis.hkeys(journal)
        scene.die(seen=seen)
        lost = [name for name in scene.under_way if name not in recorded]
        assert in_doubt(scene, redis) >= len(lost), f"place {place}"
