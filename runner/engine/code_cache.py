"""Caches the code of crews, unpacked once per bundle and loaded once per process, and selects attempts' folders."""

import contextlib
import json
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from runner.bundles import arguments, loader, relative_paths, run_program, signing, task_files, task_logging, unpacked
from runner.bundles.program import CALL
from runner.bundles.selection import may_hold
from runner.bundles.task_files import Content, Files, TaskFiles, Workdir
from runner.core import stored_output
from runner.core.clock import SYSTEM
from runner.core.context_value import ContextValue
from runner.core.errors import BundleDamaged, DiskTrouble, RelativePath, TaskError, Unsigned, needed_on_disk
from runner.core.fork_safe_lock import ForkSafeLock
from runner.core.interpolation import interpolate
from runner.core.jobs import Claim
from runner.engine import adapters
from runner.engine.attempt import Loaded
from runner.engine.ports import Store
from runner.journal.imports import answer_task, answered
from runner.journal.journal import Journal
from runner.journal.steps import have_files

if TYPE_CHECKING:
    from runner.bundles.attempt_folders import HeldFolder

TOUCH_EVERY = 1.0  #: seconds: a bundle's folder says when it was last used, for who removes the others

_loading = threading.Lock()
_making = ForkSafeLock()  #: held for a moment, without a wait: a task's threads have one folder


@contextlib.contextmanager
def _at(root: Path) -> Iterator[None]:
    """While a crew file is read, relative paths are relative to its folder, as when it was submitted.

    A process has one working directory: tasks that share a process load their code one after the other.
    """
    with _loading:
        before = Path.cwd()
        os.chdir(root)
        try:
            with relative_paths.allowed():
                yield
        finally:
            os.chdir(before)


def leave_folder() -> None:
    """Leave the folder of a finished task, unless another task's code is being loaded in it."""
    if _loading.acquire(blocking=False):
        try:
            relative_paths.leave()
        finally:
            _loading.release()


class Bundles(Protocol):
    """A source of bundles."""

    def bundle(self, sha: str) -> bytes:
        """Return a bundle's data."""

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Remove damaged data."""


class CodeCache:
    """The newest crews that this process has loaded. Their folders are released together with the cache."""

    def __init__(self, source: Bundles, folder: Path, size: int = 16) -> None:
        self._source = source
        self._folder = folder / "bundles"
        self._size = size
        self._loaded: OrderedDict[tuple[str, str, str], Loaded] = OrderedDict()
        self._held: OrderedDict[str, int] = OrderedDict()
        self._used: set[str] = set()
        self._touched: dict[str, float] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _let_go, self._held).atexit = False  # a process that ends lets go of all by itself

    def root(self, sha: str) -> Path:
        """Return the folder with a bundle's files, which stays as long as this process may need it."""
        with self._lock:
            if sha in self._held and (self._folder / sha).is_dir():
                self._use(sha)
                return self._folder / sha
        data = b""
        away: list[OSError] = []  # of the store, which is no trouble of the disk's

        def fetched() -> bytes:
            nonlocal data
            try:
                data = self._source.bundle(sha)
            except OSError as error:
                away.append(error)
                raise
            return data

        try:
            with needed_on_disk():
                root, handle = unpacked.hold(sha, self._folder, fetched)
        except DiskTrouble:
            if away:
                raise away[0] from None
            raise
        except BundleDamaged:
            self._source.drop_bundle(sha, data)
            raise
        with self._lock:
            if sha in self._held:  # another thread was first, or the folder was removed
                os.close(self._held[sha])
            self._held[sha] = handle
            for old in [one for one in self._held if not loader.in_use(one)][: max(0, len(self._held) - self._size)]:
                if old != sha:
                    os.close(self._held.pop(old))
                    self._touched.pop(old, None)
                    self._loaded = OrderedDict((key, found) for key, found in self._loaded.items() if key[0] != old)
        return root

    def _use(self, sha: str) -> None:
        self._held.move_to_end(sha)
        if (now := SYSTEM.monotonic()) - self._touched.get(sha, 0.0) > TOUCH_EVERY:
            self._touched[sha] = now
            os.utime(self._held[sha])

    def has(self, sha: str, module: str, attr: str) -> bool:
        """Whether this crew is loaded."""
        return (sha, module, attr) in self._loaded

    def get(
        self,
        sha: str,
        module: str,
        attr: str,
        name: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        root: Path | None = None,
        adapter: str = "",
        journal: Journal | None = None,
    ) -> Loaded:
        """Return the crew ``attr`` of ``module`` in a bundle, for the adapter of that name.

        Raises `BadCrew` or `MissingDependency`. Calls of models that its code makes meanwhile are answered from where
        it was read, or are recorded in the ``journal`` of the task.

        A task that works in a copy of the bundle, at ``root``, imports its code from there: so ``__file__`` is the same
        for each attempt, and what the code writes beside itself belongs to the task.
        """
        key = (sha, module, attr)
        with self._lock:
            if key in self._loaded:
                self._loaded.move_to_end(key)
                self._use(sha)
                return self._loaded[key]
        given = arguments.Given(inputs or {})
        with ContextValue(arguments.given, given):  # unlocked: one slow import does not hold up others
            loaded = self._load(sha, module, attr, name, given, root, adapter, journal)
        found = replace(loaded, made_with=given.used)
        with self._lock:
            if root is not None or getattr(found.adapter, "remembers", False):
                self._used.add(sha)
                return found
            of_one_task = getattr(found.adapter, "is_of_one_task", None)
            if given.used or (of_one_task is not None and of_one_task(found.crew)):
                return found
            self._loaded[key] = found
            while len(self._loaded) > self._size:
                self._loaded.popitem(last=False)
        return found

    def _load(
        self,
        sha: str,
        module: str,
        attr: str,
        name: str,
        inputs: Mapping[str, Any],
        root: Path | None,
        adapter: str,
        journal: Journal | None,
    ) -> Loaded:
        is_used = sha in self._used  # its crews are good for one task each
        if is_used and root is None:
            loader.unload(sha)
        copy, root = root, root or self.root(sha)
        with _at(root):
            if is_used and copy is not None:  # other tasks here, which share the process, have all that they need
                loader.unload(sha, used=True)
            calls = unpacked.calls(self._folder / sha)
            if attr.endswith(CALL):
                if journal is not None:
                    answer_task(journal, root, calls)
                whole = run_program.program(root, module, attr, key=sha, inputs=inputs, adapter=adapter)
                return _loaded(whole, name)
            with answered(journal, root, calls) if journal is not None else contextlib.nullcontext():
                found = loader.load(root, module, key=sha)
                _, crew = loader.find_crew(found, attr, adapters.is_crew, adapters.chosen, adapters.factories)
                made = _loaded(crew, name)
            return made if copy is None else replace(made, files=tuple(loader.files_of(sha)))


def _loaded(crew: object, name: str) -> Loaded:
    adapter = adapters.required(crew)
    return Loaded(crew, adapter, adapter.plan(crew, name), growing=adapters.growing(adapter))


def _let_go(held: dict[str, int]) -> None:
    while held:
        os.close(held.popitem()[1])


class Signatures:
    """The code that this process may run, if its worker has a key. ``of`` returns the signature of a run."""

    def __init__(self, of: Callable[[str], str]) -> None:
        self._of = of
        self._good: frozenset[tuple[str, ...]] = frozenset()

    def check(self, run: str, *code: str) -> None:
        """Raise `Unsigned` unless this code is signed. One round trip for each code, and none without a key."""
        if code in self._good:
            return
        if signing.keys() and not signing.verify(self._of(run), *code):
            raise Unsigned(run)
        self._good |= {code}


class AttemptFolder(TaskFiles):
    """The folder of one attempt, made at ``place`` when it is first asked for, as few tasks need it.

    ``alone``: its process performs no other task meanwhile; ``beside``: only tasks that leave its logging alone.
    """

    def __init__(
        self,
        claim: Claim,
        store: Store,
        code: CodeCache,
        place: Callable[[], "HeldFolder"],
        *,
        alone: bool = False,
        beside: bool = False,
    ) -> None:
        self._beside = beside
        self._claim, self._store, self._code, self._place = claim, store, code, place
        self._is_copy = adapters.is_disposable(claim.adapter) or (alone and adapters.has_own_folder(claim.adapter))
        self._work: Workdir | None = None
        self._journal: Journal | None = None
        self._refused: list[str] = []
        self._ends: Callable[[], None] | None = None

    def enter(self, journal: Journal) -> Path | None:
        """Make it the folder of the task's code. Returns the copy from which the code is loaded, if there is one."""
        self._journal = journal
        copy = self.workdir if self._is_copy else None
        if copy is not None:
            os.chdir(copy)
            if not self._beside:
                self._ends = task_logging.begin(last=adapters.is_disposable(self._claim.adapter))
        else:
            self._refused = relative_paths.refuse()
        if journal.found and have_files(journal.found):
            self._made()
        task_files.current.set(self)
        return copy

    @property
    def bundle_root(self) -> Path:
        """Return the folder with the files of the bundle: the copy, if there is one."""
        return self.workdir if self._is_copy else self._code.root(self._claim.bundle)

    @property
    def workdir(self) -> Path:
        """Return the folder in which the task's files are kept."""
        return self._made().folder

    def _made(self) -> Workdir:
        """Return what looks after the folder. From here on the journal records what steps do to its files."""
        with _making:
            if self._work is None:
                # Not a method of this: that would be a cycle, which is left for the collector
                begin = partial(_begin, self._claim, self._store, self._code, is_copy=self._is_copy)
                self._work = Workdir(self._place, begin, may_hold)
                if self._journal is not None and not self._journal.is_over:
                    self._journal.keep_files(self._work)
            return self._work

    def left(self) -> dict[str, Content]:
        """Return what the task left. Raises `TaskError` if the task used relative paths where they are refused."""
        if self._refused:  # and the code carried on as if there were no such file
            raise RelativePath(self._refused[0])
        if found := relative_paths.stray_files():
            raise TaskError(f"it wrote {', '.join(map(repr, found[:3]))} by a relative path: {relative_paths.ADVICE}")
        return {} if self._work is None else self._work.changed()

    def not_kept(self) -> str:
        """Return a line about the files that may not be stored; "" if there are none."""
        if self._work is None or not self._work.made:
            return ""
        found = self._work.not_kept()
        reasons = [f"{why}: {', '.join(names[:10])}" for why, names in found.items()]
        return f"not kept, {'; '.join(reasons)}" if reasons else ""

    def with_files(
        self, output: str, left: dict[str, Content], loaded: Loaded, inputs: Callable[[], Mapping[str, Any]]
    ) -> str:
        """Return the task's output with its files, and with its ``output_file`` unless the task wrote that itself."""
        if not left:
            return output
        record = json.loads(output)
        raw = stored_output.load(record)[0]
        wanted = loaded.adapter.output_files(loaded.crew).get(self._claim.job.task)
        if wanted and not self._is_copy:
            left[interpolate(wanted, inputs())] = raw
        return json.dumps(record | task_files.record_fields(raw, left), ensure_ascii=False)

    def leave(self) -> None:
        """Release the folder, whatever else raises, because the next attempt may need it."""
        self._journal = None  # which refers to the attempt: no collector is needed
        try:
            if self._ends is not None:
                self._ends()
        finally:
            try:
                leave_folder()
            finally:
                if self._work is not None:
                    self._work.remove()


def _begin(claim: Claim, store: Store, code: CodeCache, *, is_copy: bool) -> tuple[Path | None, Iterable[Files]]:
    """Return what the folder of an attempt is a copy of, and the files that were left before."""
    left = store.files_left(claim.job.run_id, claim.job.branch)
    return (code.root(claim.bundle) if is_copy else None), left
