"""The exceptions, as a tree. Each message says in one line what happened and what to do.

    RunnerError
    ├── UsageError            exit 2: nothing was stored
    │   ├── BadCrew           the crew file, or the crew in it, cannot be run
    │   │   ├── BadFlow       the flow in it cannot be run (a ValueError too)
    │   │   └── UnpaidReading it was to be read without calls of models, and makes one
    │   ├── BadInput          an input is missing or cannot be read
    │   ├── BadCheckpoint     a checkpoint that cannot be read, or has not what is asked of it
    │   └── BundleTooLarge    what lies beside the crew file is over the limit
    ├── NotFound              exit 2: no such run, branch or checkpoint
    ├── Conflict              exit 2: the run is in a state in which this cannot be done
    ├── LeadsOutside          exit 1: a file's name leads out of the folder that it is to be written in
    ├── NoWorker              exit 5: the worker that a run needs does not start here
    ├── StoreUnreachable      exit 4: the store or broker cannot be reached, or refuses us
    └── TaskError             a task failed in words: the run fails, and can be resumed
        ├── StrayCancellation its coroutine was cancelled, and not by its own code: another attempt may have more luck
        ├── DiskTrouble       this machine's disk refuses what a task needs: another attempt may have more luck
        ├── UnknownTask       the crew has no such task on this worker: it may have on another
        ├── RelativePath      a relative path, where those lead nowhere
        ├── FlowLoop          a method of a flow was triggered too often (a RecursionError too)
        ├── BundleDamaged     its code is not what was stored
        ├── OutputGone        the output of an earlier task is not in the store any more
        ├── Unsigned          its code is not signed with a key of this worker
        ├── MissingDependency a module the crew needs is not on this worker
        ├── EnvironmentFailed the environment that the crew asks for cannot be built on this machine
        ├── ModelError        a model that cannot be called, or gave no answer that can be taken
        │   └── ContextTooLong it accepts less input than it was sent
        ├── GuardrailFailed   what a task gave did not pass its guardrails, however often it was asked again
        └── TaskTimeout       a task ran longer than its ``timeout``

A `Stop` (``Interrupted``, ``TimedOut``, ``ClaimLost``, ``StepFailed``, ``InputRequired``) stops a task where it is. It
is a BaseException, so that a crew's own ``except Exception`` cannot swallow it and pay again.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from runner.core.redaction import redact


class Exit(IntEnum):
    """Exit codes of the command line (the contract)."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    CANCELLED = 3
    UNREACHABLE = 4
    WAITING = 5


class RunnerError(Exception):
    """Base of all errors a person can do something about."""

    exit_code: Exit = Exit.FAILED


class UsageError(RunnerError):
    """Something given to us is wrong; nothing was stored."""

    exit_code = Exit.USAGE


class BadCrew(UsageError):
    """The crew file, or the crew in it, cannot be run as it is."""


class UnpaidReading(BadCrew):
    """The crew file was to be read without calls of models, and makes one."""


class BadFlow(BadCrew, ValueError):
    """The flow cannot be run as it is written."""


class BadInput(UsageError):
    """An input is missing, unreadable or not JSON."""


class BadCheckpoint(UsageError, ValueError):
    """A checkpoint cannot be read here, or does not hold what is asked of it."""


class BundleTooLarge(UsageError):
    """The files beside the crew file are more than the limit allows."""


class NotFound(RunnerError):
    """No such run, branch or checkpoint."""

    exit_code = Exit.USAGE


class Conflict(RunnerError):
    """The run is in a state in which this cannot be done."""

    exit_code = Exit.USAGE


class LeadsOutside(RunnerError):
    """A file is not written, for its name leads out of its folder."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{json.dumps(name[:200])} is not written: {why}")


class NoWorker(RunnerError):
    """The worker that a run needs does not start on this machine: the run waits for a person."""

    exit_code = Exit.WAITING


def no_run(run_id: str) -> NotFound:
    """What is said where a run is named that the store does not have."""
    if re.fullmatch("b-[0-9a-f]{12}", run_id):
        return NotFound(
            f"there is no run {run_id}: this is the id of a batch, whose runs have ids of their own; "
            f"`runner runs --batch {run_id}` lists them, and show, wait, cancel and resume take the batch"
        )
    return NotFound(
        f"there is no run {run_id or repr(run_id)}: `runner runs` lists them (a finished run is only kept for a while)"
    )


def no_batch(batch: str) -> NotFound:
    """What is said where a batch is named that the store does not have."""
    return NotFound(f"there is no batch {batch} (a finished one is only kept for a while)")


class StoreUnreachable(RunnerError):
    """The store or the broker cannot be reached, or refuses us."""

    exit_code = Exit.UNREACHABLE


class TaskError(RunnerError):
    """A task failed, and its message says why."""


class DiskTrouble(TaskError):
    """This machine's disk is full, or refuses: no fault of the task, which another attempt, or machine, may do."""


class UnknownTask(TaskError):
    """A run has a task that this worker does not find in its crew. A newer one may, or one on another machine."""

    def __init__(self, task: str) -> None:
        super().__init__(
            f"there is no task {task!r} in the crew here: its tasks must not depend on what differs between machines, "
            "and no worker may be older than who submits"
        )


@contextmanager
def needed_on_disk() -> Iterator[None]:
    """Raise `DiskTrouble` for an `OSError` inside of this block."""
    try:
        yield
    except OSError as error:
        raise DiskTrouble(f"this machine's disk refused what the task needs: {error}") from error


class RelativePath(TaskError):
    """A crew's code asked for a relative path where those lead nowhere. No OSError, which `os.path.exists` swallows."""


class FlowLoop(TaskError, RecursionError):
    """A method of a flow was triggered more often than ``max_method_calls`` allows."""


class MissingDependency(TaskError):
    """A module that the crew imports is not installed on this worker."""


class StrayCancellation(TaskError):
    """A coroutine was cancelled, and neither the task's code nor its worker did that."""

    def __init__(self) -> None:
        super().__init__("its coroutine was cancelled, as something that other runs have, too, was cancelled there")


class EnvironmentFailed(TaskError):
    """The environment that a crew asks for cannot be built on this machine."""


class BundleDamaged(TaskError):
    """What the store holds of a crew's code is not what was stored."""


class OutputGone(TaskError):
    """The store has not any more what an earlier task gave."""

    def __init__(self, tasks: Sequence[str]) -> None:
        names = ", ".join(map(repr, tasks))
        what = f"output of task {names} is" if len(tasks) == 1 else f"outputs of tasks {names} are"
        super().__init__(f"the {what} gone from the store: deleted there, or evicted; resume the run to do that again")


class Unsigned(TaskError):
    """The code of a run is not signed with a key that this worker has."""

    def __init__(self, run: str) -> None:
        super().__init__(
            "the code of this run is not signed with a key that this worker has: set RUNNER_BUNDLE_KEY where the "
            f"crew's files are, then `runner resume {run} --accept-code-change`"
        )


class ModelError(TaskError):
    """A model cannot be called, or gave no answer that can be taken."""


class ContextTooLong(ModelError):
    """A model accepts less input than it was sent."""


class GuardrailFailed(TaskError):
    """What a task gave did not pass its guardrails, however often it was asked again."""


class TaskTimeout(TaskError):
    """A task ran longer than its ``timeout``."""


class Stop(BaseException):
    """A task is stopped from outside. A deferrable one waits for the end of the call that the task is in."""

    deferrable = False


class Interrupted(Stop):
    """The worker is draining: the task stops here and is handed back."""

    deferrable = True


class TimedOut(Stop):
    """The task ran longer than its ``timeout``."""

    @classmethod
    def after(cls, seconds: float) -> "TimedOut":
        """Return the error of a task that ran longer than its timeout of ``seconds``."""
        return cls(f"it ran longer than its timeout of {seconds:g} s")


class ClaimLost(Stop):
    """The task is no longer this worker's: nothing more is written, and it stops."""


class StepFailed(Stop):
    """A step could not be begun or recorded, for the reason that is its cause.

    The task fails of that, whatever the code, or the framework, that made the step does about its errors.
    """

    deferrable = True


class InputRequired(Stop):
    """The task asks a person something: it stops here, and resumes when ``step`` of its journal has the answer."""

    deferrable = True

    def __init__(self, step: str = "", question: str = "", about: Mapping[str, Any] | None = None) -> None:
        super().__init__(question)
        self.step = step
        self.question = question
        self.about = dict(about or {})


def first_line(error: BaseException, most: int = 100) -> str:
    """Return an error's class and the first line of its message, redacted, at most so many characters of it."""
    try:
        text = redact(str(error)).strip().partition("\n")[0]
    except Exception:  # its own __str__ fails
        text = ""
    return f"{type(error).__name__}: {one_line(RunnerError(text))[:most]}".removesuffix(": ")


def one_line(error: BaseException) -> str:
    """Return an error's message as one printable line without secrets. It may come from anybody's code."""
    try:
        text = redact(" ".join(str(error).split()))
    except Exception:  # its own __str__ fails
        return ""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
