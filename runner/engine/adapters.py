"""The registry of installed adapters.

Each family of them is an entry point of the group ``crew_runner.adapters``; the engine knows none by name.
"""

import functools
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles import frameworks, reading
from runner.bundles.run_dir import Home
from runner.core.errors import BadCrew
from runner.engine.adapter import Adapter, GrowingAdapter
from runner.engine.plugin import AdapterPlugin

GROUP = "crew_runner.adapters"


@functools.cache
def plugins() -> tuple[AdapterPlugin, ...]:
    """The families of adapters that are installed."""
    found: tuple[AdapterPlugin, ...] = tuple(point.load() for point in entry_points(group=GROUP))
    frameworks.installed[:] = found
    return found


def adapter_of(thing: object) -> Adapter | None:
    """The adapter that accepts ``thing``, if any does."""
    return next((adapter for plugin in plugins() if (adapter := plugin.adapter_of(thing)) is not None), None)


def names() -> list[str]:
    """Those of all adapters that are installed here: from here on they are known in this process, and in its forks."""
    return [name for plugin in plugins() for name in plugin.names]


@functools.cache
def disposable() -> frozenset[str]:
    """The names of the adapters that have a process for each task."""
    return frozenset(name for plugin in plugins() if plugin.disposable for name in plugin.names)


@functools.cache
def is_disposable(name: str) -> bool:
    """Whether the adapter of this name has a process for each task."""
    return name in disposable()


def continues(name: str) -> bool:
    """Whether this process, where a task of a disposable adapter of this name was done, may do the run's next."""
    return all(plugin.continues(name) for plugin in _of(name))


@functools.cache
def has_own_folder(name: str) -> bool:
    """Whether tasks of the adapter of this name work in a copy of the project, where a process does one at a time."""
    return all(plugin.relative_paths for plugin in _of(name))


def own_models(name: str) -> str:
    """Why nothing can stand in for the models of crews of this kind; "" if it can."""
    return next((plugin.own_models for plugin in _of(name)), "")


def word_of(thing: object) -> str:
    """What people call what an adapter accepts: a crew, or an agent."""
    return next((plugin.word for plugin in plugins() if plugin.adapter_of(thing) is not None), AdapterPlugin.word)


def preloaded() -> list[str]:
    """The adapters that a worker preloads by default."""
    return [name for plugin in plugins() for name in plugin.preloaded]


def preload(name: str) -> None:
    """Import what crews of this kind need, where processes are forked from; nothing if it is not installed."""
    for plugin in _of(name):
        plugin.preload(name)


def untested(name: str) -> str | None:
    """A line to say where crews of this kind need something that is installed in an untested version."""
    return next((line for plugin in _of(name) if (line := plugin.untested())), None)


def quiet() -> None:
    """Before any crew file is loaded here: have what it may import not say more than was asked for."""
    for plugin in plugins():
        plugin.quiet()


@functools.cache
def preparations(name: str) -> tuple[Callable[[Home], None], ...]:
    """What makes this process ready for one task of such a crew, before its code is loaded; for most crews nothing."""
    return tuple(one.prepare for one in _of(name) if type(one).prepare is not AdapterPlugin.prepare)


def may_share(name: str, crew: object, files: Iterable[Path]) -> bool:
    """Whether this process may do tasks of other runs of this crew's code beside its own."""
    return any(one.may_share(crew, files) for one in _of(name))


def share(name: str, home: Home) -> None:
    """From here on it may."""
    for one in _of(name):
        one.share(home)


def prepare_shared_task(name: str, home: Home) -> None:
    """Make this thread and context ready for one task of such a crew beside others."""
    for one in _of(name):
        one.prepare_shared_task(home)


def is_unchanged(name: str) -> bool:
    """Whether a process that is shared is as it was when that began."""
    return all(one.is_unchanged() for one in _of(name))


def growing(adapter: Adapter) -> GrowingAdapter | None:
    """The adapter as one whose plans grow, if they do."""
    return adapter if hasattr(adapter, "expand") else None  # type: ignore[return-value]  # `hasattr` says so


def chosen(things: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Of the crews of a file, those that are meant to be run: flows rather than the crews that they kick off, a flow
    rather than its class, a class rather than those that it is made of, an agent rather than those that work for it."""
    things = [(name, thing) for name, thing in things if not frameworks.is_agent(thing)] or things
    things = _outermost(things) if len(things) > 1 else things
    flows = [(name, thing) for name, thing in things if any(plugin.is_flow(thing) for plugin in plugins())]
    made = [(name, flow) for name, flow in flows if not isinstance(flow, type)]
    owners = [(name, flow) for name, flow in flows if isinstance(flow, type)]
    last = [(n, one) for n, one in owners if not any(o is not one and issubclass(o, one) for _, o in owners)]
    return made or list(last) or things


def _outermost(things: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Those that none of the others has work for it; of several that have work for each other, the one with most of
    them."""
    ids = {id(thing) for _, thing in things}
    parts = {
        id(thing): {id(part) for plugin in plugins() for part in plugin.parts(thing)} & ids - {id(thing)}
        for _, thing in things
    }
    reach = {one: set(found) for one, found in parts.items()}
    for _ in things:
        for found in reach.values():
            found |= {other for one in found for other in reach[one]}

    def is_inner(one: int) -> bool:
        over = [other for other in reach if other != one and one in reach[other]]
        return any(other not in reach[one] or len(parts[other]) > len(parts[one]) for other in over)

    return [(name, thing) for name, thing in things if not is_inner(id(thing))] or things


def is_crew(thing: object) -> bool:
    """Whether some adapter can run it."""
    return adapter_of(thing) is not None


def required(thing: object) -> Adapter:
    """The adapter that accepts ``thing``. Raises `BadCrew`."""
    adapter = adapter_of(thing)
    if not plugins():
        raise BadCrew("no adapter for any kind of crew is installed: `pip install crew-runner`, or `pip install -e .`")
    if adapter is None:
        raise BadCrew(f"a {type(thing).__qualname__} is not a crew that can be run")
    return adapter


def factories(module: ModuleType) -> list[str]:
    """What in a module makes a crew when it is called, by name."""
    return list(dict.fromkeys(name for plugin in plugins() for name in plugin.factories(module)))


def inputs_of(crew: object) -> dict[str, Any]:
    """The inputs that a crew's own file kicks it off with."""
    return reading.inputs_of(crew) or next((inputs for plugin in plugins() if (inputs := plugin.inputs_of(crew))), {})


def _of(name: str) -> list[AdapterPlugin]:
    return [plugin for plugin in plugins() if name in plugin.names]


plugins()  # from here on crew files and projects are read as the frameworks that are installed want it
