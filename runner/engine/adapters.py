"""The registry of installed adapters: entry points of the group ``crew_runner.adapters``. The engine names none."""

import functools
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles import frameworks, reading
from runner.bundles.run_dir import Home
from runner.core.errors import BadCrew
from runner.core.plain_text import of_class
from runner.engine.adapter import Adapter, GrowingAdapter
from runner.engine.plugin import AdapterPlugin

GROUP = "crew_runner.adapters"


@functools.cache
def plugins() -> tuple[AdapterPlugin, ...]:
    """Return the installed families of adapters."""
    found: tuple[AdapterPlugin, ...] = tuple(point.load() for point in entry_points(group=GROUP))
    frameworks.installed[:] = found
    return found


def adapter_of(thing: object) -> Adapter | None:
    """Return the adapter that accepts ``thing``; None if there is none."""
    return next((adapter for plugin in plugins() if (adapter := plugin.adapter_of(thing)) is not None), None)


def names() -> list[str]:
    """Return the names of all installed adapters, which this process and its forks remember."""
    return [name for plugin in plugins() for name in plugin.names]


@functools.cache
def disposable() -> frozenset[str]:
    """Return the names of the adapters that have a process for each task."""
    return frozenset(name for plugin in plugins() if plugin.disposable for name in plugin.names)


@functools.cache
def is_disposable(name: str) -> bool:
    """Whether the adapter of this name has a process for each task."""
    return name in disposable()


def continues(name: str) -> bool:
    """Whether this process, after a task of this disposable adapter, may perform the run's next task."""
    return all(plugin.continues(name) for plugin in _of(name))


@functools.cache
def has_own_folder(name: str) -> bool:
    """Whether tasks of this adapter work in a copy of the project, in a process that performs one task at a time."""
    return all(plugin.relative_paths for plugin in _of(name))


def own_models(name: str) -> str:
    """Return why stub models cannot replace the models of crews of this kind; "" if they can."""
    return next((plugin.own_models for plugin in _of(name)), "")


def word_of(thing: object) -> str:
    """Return the word for what an adapter accepts: crew, or agent."""
    return next((plugin.word for plugin in plugins() if plugin.adapter_of(thing) is not None), AdapterPlugin.word)


def preloaded() -> list[str]:
    """Return the adapters that a worker preloads by default."""
    return [name for plugin in plugins() for name in plugin.preloaded]


def preloads() -> bool:
    """Whether a worker has something to preload by default."""
    return any(find_spec(plugin.framework) for plugin in plugins() if plugin.preloaded and plugin.framework)


def preload(name: str) -> None:
    """Import what crews of this kind need in the process that forks theirs; does nothing if it is not installed."""
    for plugin in _of(name):
        plugin.preload(name)


def untested(name: str) -> str | None:
    """Return a warning if crews of this kind need a package that is installed in an untested version."""
    return next((line for plugin in _of(name) if (line := plugin.untested())), None)


def quiet() -> None:
    """Silence unrequested output of frameworks before any crew file is loaded."""
    for plugin in plugins():
        plugin.quiet()


@functools.cache
def preparations(name: str) -> tuple[Callable[[Home], None], ...]:
    """Return a function that prepares this process for one task of such a crew, before its code is loaded."""
    return tuple(one.prepare for one in _of(name) if type(one).prepare is not AdapterPlugin.prepare)


def may_share(name: str, crew: object, files: Iterable[Path]) -> bool:
    """Whether this process may also perform tasks of other runs of this crew's code."""
    return any(one.may_share(crew, files) for one in _of(name))


def share(name: str, home: Home) -> None:
    """Make this process a shared one."""
    for one in _of(name):
        one.share(home)


def prepare_shared_task(name: str, home: Home) -> None:
    """Prepare this thread and context for one task of such a crew in a shared process."""
    for one in _of(name):
        one.prepare_shared_task(home)


def is_unchanged(name: str) -> bool:
    """Whether the state of a shared process is still as it was when it became shared."""
    return all(one.is_unchanged() for one in _of(name))


def growing(adapter: Adapter) -> GrowingAdapter | None:
    """Return the adapter if it has dynamic plans; None otherwise."""
    return adapter if hasattr(adapter, "expand") else None  # type: ignore[return-value]  # `hasattr` says so


def chosen(things: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Return those of a file's crews that are meant to be run.

    They are flows rather than the crews that they kick off, a flow rather than its class, a class rather than the crews
    that it creates, an agent rather than its sub-agents.
    """
    things = [(name, thing) for name, thing in things if not frameworks.is_agent(thing)] or things
    things = _outermost(things) if len(things) > 1 else things
    flows = [(name, thing) for name, thing in things if any(plugin.is_flow(thing) for plugin in plugins())]
    made = [(name, flow) for name, flow in flows if not isinstance(flow, type)]
    owners = [(name, flow) for name, flow in flows if isinstance(flow, type)]
    last = [(n, one) for n, one in owners if not any(o is not one and issubclass(o, one) for _, o in owners)]
    return made or list(last) or things


def _outermost(things: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Return the agents that are not sub-agents of others; of several that contain each other, the one with most."""
    ids = {id(thing) for _, thing in things}
    parts = {id(thing): _parts(thing, ids) for _, thing in things}
    reach = {one: set(found) for one, found in parts.items()}
    for _ in things:
        for found in reach.values():
            found |= {other for one in found for other in reach[one]}

    def is_inner(one: int) -> bool:
        over = [other for other in reach if other != one and one in reach[other]]
        return any(other not in reach[one] or len(parts[other]) > len(parts[one]) for other in over)

    return [(name, thing) for name, thing in things if not is_inner(id(thing))] or things


def _parts(thing: object, named: set[int]) -> set[int]:
    """Return the ids of the ``named`` sub-agents of an agent, and of those without a name among its sub-agents."""
    seen = {id(thing): thing}  # kept, so that no other object gets one of these ids
    left = [thing]
    while left:
        one = left.pop()
        for part in (part for plugin in plugins() for part in plugin.parts(one)):
            if id(part) not in seen:
                seen[id(part)] = part
                left += [part] if id(part) not in named else []
    return seen.keys() & named - {id(thing)}


def is_crew(thing: object) -> bool:
    """Whether some adapter accepts it."""
    return adapter_of(thing) is not None


def required(thing: object) -> Adapter:
    """Return the adapter that accepts ``thing``. Raises `BadCrew`."""
    adapter = adapter_of(thing)
    if not plugins():
        raise BadCrew("no adapter for any kind of crew is installed: `pip install crew-runner`, or `pip install -e .`")
    if adapter is None:
        raise BadCrew(f"{of_class(thing)} is not a crew that can be run")
    return adapter


def factories(module: ModuleType) -> list[str]:
    """Return the names of functions and classes in a module that create a crew."""
    return list(dict.fromkeys(name for plugin in plugins() for name in plugin.factories(module)))


def inputs_of(crew: object) -> dict[str, Any]:
    """Return the inputs with which a crew's own file kicks it off."""
    return reading.inputs_of(crew) or next((inputs for plugin in plugins() if (inputs := plugin.inputs_of(crew))), {})


def _of(name: str) -> list[AdapterPlugin]:
    return [plugin for plugin in plugins() if name in plugin.names]


plugins()  # from here on crew files and projects are read as the frameworks that are installed want it
