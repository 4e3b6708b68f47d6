"""Which environments this process provides, and what happens to jobs that need another."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from runner.core.jobs import ANY, Job, Needed

MOST = 64  #: digests that go with a claim; one that was forgotten is looked at again


class Environments:
    """A process that accepts any environment that a run asks for. ``accepted`` goes with claims (`Store.claim`)."""

    accepted = ANY
    failure = ""  #: why the environment that this process stands for could not be built

    def __init__(self) -> None:
        self._digests: deque[str] = deque(maxlen=MOST)

    def accept(self, needed: Needed) -> bool:
        """Accept runs that ask for this environment from now on."""
        self._digests.append(needed.digest)
        self.accepted = "".join(f",{digest}," for digest in self._digests)
        return True

    def takes(self, needed: Needed, root: Callable[[], Path], job: Job) -> bool:  # noqa: ARG002 - a hook
        """Whether this process performs runs that ask for it; if not, the job was sent on.

        ``root`` returns the folder of the bundle's files, and raises if this worker may not run them.
        """
        return self.accept(needed)


ANY_ENVIRONMENT = Environments()
