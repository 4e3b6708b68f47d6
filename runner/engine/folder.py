"""Where an attempt on the fleet works: in its own copy of the project, or nowhere but for ``ctx.workdir``."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from runner.bundles import relative_paths, task_files
from runner.bundles.selection import may_hold
from runner.bundles.task_files import Content, Files, TaskFiles, Workdir
from runner.core import output as outputs
from runner.core.errors import RelativePath, TaskError
from runner.core.interpolation import interpolate
from runner.core.jobs import Claim
from runner.engine import adapters
from runner.engine.attempt import Loaded
from runner.engine.code_cache import CodeCache, leave_folder
from runner.engine.ports import Store
from runner.journal.journal import Journal


class AttemptFolder:
    """The folder of one attempt. ``place`` is where it is made when it is first needed."""

    def __init__(self, claim: Claim, store: Store, code: CodeCache, place: Path) -> None:
        self._claim = claim
        self._store = store
        self._code = code
        self._is_copy = adapters.is_disposable(claim.adapter)
        self._work = Workdir(place, self._begin, may_hold)
        self._refused: list[str] = []

    def enter(self, journal: Journal) -> Path | None:
        """Have the task's code find it. Returns the copy that is the working directory, if it is one."""
        copy = self._work.folder if self._is_copy else None
        if copy is not None:
            os.chdir(copy)
        else:
            self._refused = relative_paths.refuse()
        task_files.current.set(
            TaskFiles(lambda: copy or self._code.root(self._claim.bundle), lambda: self._work.folder)
        )
        journal.keep_files(self._work)
        return copy

    def left(self) -> dict[str, Content]:
        """What the task left. Raises `TaskError` if it used relative paths where they lead nowhere."""
        if self._refused:  # and the code carried on as if there were no such file
            raise RelativePath(self._refused[0])
        if found := relative_paths.stray_files():
            raise TaskError(f"it wrote {', '.join(map(repr, found[:3]))} by a relative path: {relative_paths.ADVICE}")
        return self._work.changed()

    def not_kept(self) -> str:
        """A line on what it left that may not be stored; "" for nothing."""
        found = self._work.not_kept()
        told = [f"{why}: {', '.join(names[:10])}" for why, names in found.items()]
        return f"not kept, {'; '.join(told)}" if told else ""

    def with_files(self, output: str, left: dict[str, Content], loaded: Loaded) -> str:
        """The task's output with what it left, and with its ``output_file``, if it did not write that itself."""
        if not left:
            return output
        record = json.loads(output)
        raw = outputs.load(record)[0]
        wanted = loaded.adapter.output_files(loaded.crew).get(self._claim.job.task)
        if wanted and not self._is_copy:
            left[interpolate(wanted, self._claim.inputs)] = raw
        return json.dumps(record | task_files.beside(raw, left), ensure_ascii=False)

    def leave(self) -> None:
        """The attempt is over."""
        leave_folder()
        self._work.remove()

    def _begin(self) -> tuple[Path | None, Iterable[Files]]:
        job = self._claim.job
        left = self._store.files_left(job.run_id, job.branch)
        return (self._code.root(self._claim.bundle) if self._is_copy else None), left
