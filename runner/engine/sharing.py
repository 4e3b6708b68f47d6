"""Policy for shared processes: whether a process may also run tasks of other runs."""

import hashlib
from collections.abc import Callable

from runner.bundles.run_dir import Home
from runner.core.errors import Interrupted
from runner.core.jobs import Claim
from runner.engine import adapters
from runner.engine.attempt import Loaded


class Sharing:
    """The policy of a process that is never shared."""

    is_open = False  #: whether it may do other tasks now

    def read(self, claim: Claim, home: Home, read: Callable[[], Loaded]) -> Loaded:  # noqa: ARG002 - the names are for those who override it
        """Load the crew of a task."""
        return read()


NO_SHARING = Sharing()


def code_of(bundle: str, module: str, attr: str, adapter: str) -> bytes:
    """Return the identity of a run's code: a shared process performs tasks of one code only."""
    return hashlib.sha256("|".join((bundle, module, attr, adapter)).encode()).digest()


def may_begin(claim: Claim, loaded: Loaded) -> bool:
    """Whether a process that has read this crew, its first, may perform tasks of other runs of the same code."""
    plain = not claim.standin and not loaded.made_with and loaded.growing is None
    return plain and adapters.may_share(claim.adapter, loaded.crew, loaded.files)


def check(claim: Claim, loaded: Loaded) -> None:
    """Raise `Interrupted` if the crew of another run differs from the first, or reading it changed the process."""
    if not may_begin(claim, loaded):
        raise Interrupted("its crew needs a process of its own")
