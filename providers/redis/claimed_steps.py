"""What a worker writes of the steps of a task that it holds."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, counters_text, reserved_text, text_of_one
from runner.journal.recorder import BegunStep, DoneStep
from runner.journal.task_marks import HALF
from runner.providers.redis import scripts
from runner.providers.redis.scripts import PackedScript, flat
from runner.providers.redis.step_notes import NEITHER, StepNotes


class ClaimedSteps(StepNotes):
    """The steps of a claimed task. Each write shows the token; `ClaimLost` if it no longer holds."""

    _reached = 0  #: records that this attempt replayed or made: its progress

    @cached_property
    def _record_own(self) -> PackedScript:
        script = scripts.load("record_own_step")
        return PackedScript(script, self._run, self._task, self._journal, self._claim.token)

    @cached_property
    def _record_call(self) -> PackedScript:
        script = scripts.load("record_call")
        return PackedScript(script, self._run, self._task, self._journal, *self._who.values())

    can_wait = True

    def place(self, step: str) -> str:
        """The journal is its own: the step's name."""
        return step

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters | int,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record a step's result: one round trip.

        Where a step mostly follows it closely, it notes that one, too, which then needs no word. If that does not come
        soon, the note is withdrawn. A process that dies meanwhile has said whether it came, or what has left.
        """
        with self._lock:
            if self._out.ahead:
                self._confirm()
            reserved, many = None, 0 if entry is None else self._open[entry]
            try:
                if entry is not None:
                    if many > 0:
                        self._open[entry] = many - 1
                        if self._out.is_read:
                            reserved, self._next.recorded = self._next.get(entry), entry
                    self._between = (entry, 1)
                begun = self._open.with_one_more(reserved)
                if reserved is not None and reserved != STEP and len(begun) >= HALF // 2:
                    reserved, begun = None, self._open.text()  # that could not be said to leave
                paid = "" if entry is None else text_of_one(entry)
                expected = reserved_text(reserved)
                self._reached += 1 + (replayed.passed if isinstance(replayed, Counters) else replayed)
                self._record(step, value, begun, expected, entry, usage, replayed, reported=reported)
            except BaseException:
                if entry is not None and many > 0:
                    self._open[entry] = many  # done, and not recorded: in doubt
                self._between = NEITHER
                raise
            if self._log is not None:
                self._log.recorded((step,), paid, begun)
            if entry is not None:
                self._between = NEITHER
                if entry != STEP:
                    self._out.count(entry, -1)
            self._reserve(None if reserved is None else True)
            if reserved is not None:
                self._expected = reserved

    def _record(
        self,
        step: str,
        value: str,
        begun: str,
        reserved: str,
        entry: AccountKey | None,
        usage: Usage,
        replayed: Counters | int,
        *,
        reported: bool,
    ) -> None:
        """Record it: by a script of its own, where there is one and nothing was replayed before it. If that finds the
        claim lost, the script for all says so."""
        done = None
        if not replayed and usage is NO_TOKENS and (entry is None or entry.kind == "step"):
            paid = "" if entry is None else "1"
            done = self._record_own(self._line, step, value, paid, begun, reserved, self._reached)
        elif not replayed and entry is not None and entry.kind == "model":
            _, agent, model = entry
            tokens = usage.prompt_tokens, usage.completion_tokens, ",".join(map(str, usage.details))
            of_call = agent, model, *tokens, "" if reported else "1"
            done = self._record_call(self._line, step, value, begun, reserved, self._reached, *of_call)
        if done:
            self._sure()
            return
        about: dict[str, Any] = {}
        if entry is not None and entry.kind == "model" and not reported:
            about = {"model": entry.model, "agent": entry.agent, **usage.by_name()}
        details = usage.details if usage is not NO_TOKENS else ()
        self._fenced(
            scripts.load("record_step"),
            run=self._run,
            task=self._task,
            journal=self._journal,
            step=step,
            value=value,
            begun=begun,
            reserved=reserved,
            reached=self._reached,
            paid="" if entry is None else text_of_one(entry),
            replayed=counters_text(replayed),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            details=json.dumps(details) if details else "",
            event=flat(about) if about else "",
        )

    def record_steps(
        self,
        done: Sequence[DoneStep],
        *,
        dropped: int = 0,
        begins: Sequence[BegunStep] = (),
        replayed: Counters | int,
    ) -> None:
        """Record what several steps gave, and note those that begin next: one round trip. Raises `ClaimLost`."""
        with self._lock:
            if self._out.ahead:
                self._confirm()
            texts, kinds, calls = list[str](), "", list[list[Any]]()
            plain, by_entry = list[str](), dict[AccountKey | None, list[str]]()
            for step, value, entry, usage, reported in done:
                texts += (step, value)
                if entry is STEP and usage is NO_TOKENS:  # of `ctx.map` thousands
                    kinds += "1"
                    plain.append(step)
                    continue
                of_call = entry is not None and (entry.kind != "step" or usage is not NO_TOKENS)
                kinds += "0" if entry is None else "2" if of_call else "1"
                if entry is not None and of_call:
                    event = int(entry.kind == "model" and not reported)
                    calls.append([*entry, 1, 0, usage.prompt_tokens, usage.completion_tokens, event, *usage.details])
                by_entry.setdefault(entry, []).append(step)
            if plain:
                by_entry.setdefault(STEP, []).extend(plain)
            before = dict(self._open)
            try:
                for entry, alike in by_entry.items():
                    if entry is not None and entry != STEP:
                        self._open[entry] = max(self._open[entry] - len(alike), 0)
                counted = len(by_entry.get(STEP, ()))
                self._open[STEP] = max(self._open[STEP] - counted - dropped, 0)
                self._next.recorded = None
                self._between = (STEP, counted - self._add_open(begins)[STEP])
                self._reached += len(done) + (replayed.passed if isinstance(replayed, Counters) else replayed)
                begun = self._open.text()
                self._fenced(
                    scripts.load("record_steps"),
                    run=self._run,
                    task=self._task,
                    journal=self._journal,
                    kinds=kinds,
                    calls=json.dumps(calls, ensure_ascii=False) if calls else "",
                    begun=begun,
                    replayed=counters_text(replayed),
                    reached=self._reached,
                    steps=texts,
                )
            except BaseException:
                self._open.clear()
                self._open.update(before)  # what was done is in doubt; and nothing begins
                self._open[STEP] = max(self._open[STEP] - dropped, 0)
                self._between = NEITHER
                raise
            self._between = NEITHER
            self._reserve(None)
            for entry, alike in by_entry.items():
                if self._log is not None:
                    self._log.recorded(alike, "" if entry is None else text_of_one(entry), begun)
                if entry is not None and entry != STEP:
                    self._out.count(entry, -len(alike))
            if self._log is not None and not done:
                self._log.began(begun)
