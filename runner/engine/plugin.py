"""The base class of adapter plugins, by which a package adds support for a framework."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles.frameworks import Framework
from runner.bundles.run_dir import Home
from runner.engine.adapter import Adapter


class AdapterPlugin(Framework):
    """A family of adapters, found by the entry points of the group ``crew_runner.adapters``.

    Override the methods you need. Importing its module must be cheap, because every process that looks at any crew
    imports it. The framework itself is imported when a crew file imports it.
    """

    names: tuple[str, ...] = ()
    """The adapters of this family, by `Adapter.name`."""

    preloaded: tuple[str, ...] = ()
    """Those of `names` that a worker preloads before it forks, unless ``RUNNER_PRELOAD`` says which."""

    disposable: bool = False
    """Whether each task of its crews gets a process of its own, which ends after it, or after more tasks of that run:
    see `continues`."""

    relative_paths: bool = True
    """Whether relative paths are those of the project: its tasks work in a copy, where a process does one at a time."""

    own_models: str = ""
    """Why nothing can stand in for the models of its crews (``--demo``, ``--offline``); "" if it can."""

    def adapter_of(self, thing: object) -> Adapter | None:  # noqa: ARG002 - the names are for those who override it
        """Return the adapter that accepts ``thing``; None if none of this family does."""
        return None

    def is_flow(self, thing: object) -> bool:  # noqa: ARG002 - a hook
        """Whether it is a flow, or a class of flows, which is run rather than the crews that it kicks off."""
        return False

    def parts(self, thing: object) -> list[object]:  # noqa: ARG002 - a hook
        """Return the sub-agents of ``thing``, which are not runs of their own."""
        return []

    def factories(self, module: ModuleType) -> list[str]:  # noqa: ARG002 - a hook
        """Return the names in a module of functions and classes that create a crew, the likeliest first."""
        return []

    def inputs_of(self, crew: object) -> dict[str, Any]:  # noqa: ARG002 - a hook
        """Return the inputs with which a crew's own file kicks it off."""
        return {}

    def quiet(self) -> None:
        """Silence unrequested output of the framework, before any crew file is loaded."""

    def preload(self, name: str) -> None:
        """Import what tasks of the adapter ``name`` need, in the process from which theirs are forked."""

    def prepare(self, home: Home) -> None:
        """Prepare this process for one task, before the code of its crew is loaded."""

    def continues(self, name: str) -> bool:  # noqa: ARG002 - a hook
        """Whether this process, after a task of the adapter ``name``, may perform the run's next task.

        It is asked if the adapter is disposable. If it may, `prepare` is called again for the same home, and the code
        is loaded again.
        """
        return False

    def may_share(self, crew: object, files: Iterable[Path]) -> bool:  # noqa: ARG002 - a hook
        """Whether a process may perform tasks of this crew together with those of other runs of the same code.

        It is asked if the adapter is disposable, with the crew as read from these files, and again for each other run:
        see `prepare_shared_task`.
        """
        return False

    def share(self, home: Home) -> None:
        """Make this process, which was prepared for one run, ready for tasks of other runs.

        Called in the context of its first task.
        """

    def prepare_shared_task(self, home: Home) -> None:
        """Prepare this thread, which has its own working directory, and this context for one task."""

    def is_unchanged(self) -> bool:
        """Whether the state of a shared process is still as it was when it became shared."""
        return True

    def untested(self) -> str | None:
        """Return a warning if the framework is installed in an untested version; None otherwise."""
        return None
