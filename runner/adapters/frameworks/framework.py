"""The base class for framework support: subclassed here, and by other packages."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, get_type_hints

from pydantic_core import to_jsonable_python

from runner.adapters.frameworks.sub_agents import parts_of
from runner.bundles.reading import KickedOff, being_read
from runner.core.context_value import ContextValue
from runner.core.inputs import kind_of
from runner.journal import context_state
from runner.journal.code_beside import runs_again
from runner.journal.tool_uses import About, record_uses

PROMPT = "prompt"  #: the input that an agent is asked


class AgentFramework:
    """One framework: what its agents are, how one is run, and where it uses tools.

    An entry point of the group ``crew_runner.agents``, named as the module that users import, gives an instance, which
    is made once that module has been imported.
    """

    name: str = ""
    """What its adapter is called."""

    module: str = ""
    """The module of its that is imported wherever there is one of its agents: another package may have its name."""

    kinds: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The classes of its agents, each with its module; of those of modules that are not imported there are none."""

    runs: ClassVar[tuple[str, ...]] = ()
    """The methods, as ``module:Class.method``, by which its users run an agent: not while a file is only read."""

    def is_agent(self, thing: object) -> bool:
        """Whether it is something that can be run: of one of the `kinds`."""
        return isinstance(thing, tuple(self.loaded(*kind) for kind in self.kinds))

    def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run it: what it gives, or an awaitable of that. What is no JSON and no model is made such by `result`."""
        raise NotImplementedError

    def record_uses(self) -> None:
        """Have each use of a tool recorded as a step (`runner.journal.tool_uses.record_uses`)."""

    def inputs(self, agent: Any) -> list[str]:  # noqa: ARG002 - the names are for those who override it
        """The names of the inputs that it needs."""
        return [PROMPT]

    def input_kinds(self, agent: Any) -> dict[str, str]:  # noqa: ARG002 - for those that say
        """Which inputs are no text, as the author declares them: what each is in JSON (`runner.core.inputs.KINDS`)."""
        return {}

    def input_names(self, agent: Any) -> list[str]:  # noqa: ARG002 - for those that say
        """The names of all inputs that it takes, as the author declares them; empty where it may take others, too."""
        return []

    def parts(self, agent: Any) -> list[Any]:
        """The agents that it hands over to, or has work for it."""
        return parts_of(agent, self.is_agent)

    def name_of(self, agent: Any) -> str:
        """Return the name that the author gave the agent; "" if none."""
        name = getattr(agent, "name", None)
        return name if isinstance(name, str) else ""

    @staticmethod
    def loaded(module: str, name: str) -> type:
        """A class of a module of the framework; of one that is not imported, a class that nothing is of."""
        found: type = getattr(sys.modules.get(module), name, _Nothing)
        return found

    def watch(self) -> None:
        """From here on, uses of tools are steps, and no agent is run while a file is read."""
        self.record_uses()
        for place in self.runs:
            _stop_while_read(place)


class _Nothing:
    """What no agent is."""


def replace_once(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of the framework by what ``wrap`` makes of it, once in a process; nothing if it has none."""
    found, mark = getattr(owner, name, None), f"is_{wrap.__name__.lstrip('_')}"
    if found is not None and not hasattr(found, mark):
        wrapped = functools.wraps(found)(wrap(found))
        setattr(wrapped, mark, True)
        setattr(owner, name, wrapped)


def keepers(*tools: Any) -> tuple[Any, ...]:
    """The objects of the author's in which tools may keep something: themselves, or what their methods are of."""
    found = [inspect.unwrap(one) if inspect.isroutine(one) else one for one in tools]
    return tuple(one for each in found if context_state.is_own(one := getattr(each, "__self__", each)))


def record_own_uses(base: Any, method: str, record: Callable[[type], None], *, without: tuple[type, ...] = ()) -> None:
    """From now on, call ``record`` with each class that an author derives from ``base`` and that has the ``method``.

    Left out are classes whose base's method is recorded already, because theirs calls it, and those ``without``.
    """

    def found(cls: type) -> None:
        is_recorded = any(hasattr(vars(one).get(method), "records_uses") for one in cls.__mro__)
        if method in vars(cls) and not (is_recorded or issubclass(cls, without)):
            record(cls)

    _with_own_classes(base, found)


def run_again_beside(base: Any, *prefixes: str) -> None:
    """From now on, methods whose names begin so, of classes derived from ``base``, run again when a task restarts.

    So what they change is not recorded with the tool uses beside them.
    """

    def found(cls: type) -> None:
        for name, method in vars(cls).copy().items():
            if name.startswith(prefixes) and inspect.isfunction(method):
                setattr(cls, name, runs_again(method))

    _with_own_classes(base, found)


def _with_own_classes(base: Any, found: Callable[[type], None]) -> None:
    """Call ``found`` with each class that an author derives from ``base``, those that there are already first."""
    own = vars(base).get("__init_subclass__")
    if hasattr(own, "finds_classes"):
        return

    def own_class(cls: type) -> None:
        if context_state.is_own_class(cls):
            found(cls)

    def __init_subclass__(cls: type, /, **options: Any) -> None:
        begin = own.__get__(None, cls) if own is not None else super(base, cls).__init_subclass__
        begin(**options)
        own_class(cls)

    made: Any = classmethod(__init_subclass__)
    made.finds_classes = True
    base.__init_subclass__ = made
    left = base.__subclasses__()
    while left:
        own_class(one := left.pop())
        left += one.__subclasses__()


def record_inside(
    base: Any, entry: str, inner: str, about: About, *, passing: tuple[type[BaseException], ...] = ()
) -> None:
    """Have each use of a tool by the method ``entry`` of ``base`` be a step, whose record is its author's part.

    That is the method ``inner`` of the tool's own class, or the function that the tool has there. What the framework
    does around it, such as calls of an author's callbacks, it also does on replay. ``about`` is called with the
    arguments of ``entry``; see `record_uses` for the rest.
    """
    enter = runs_again(getattr(base, entry))
    if hasattr(enter, "records_uses"):
        return
    entered: ContextVar[tuple[Any, ...] | None] = ContextVar(f"runner_{entry}", default=None)
    is_async = inspect.iscoroutinefunction(enter)

    def about_inner(*called: Any, **_: object) -> Any:
        found = entered.get()
        if found is None or not (found[0] is None or found[0] is called[0]):  # called by the code of its author
            return None
        entered.set(None)
        return about(*found[1], **found[2])

    @contextlib.contextmanager
    def entering(tool: Any, args: Any, kwargs: Any) -> Iterator[None]:
        owner = next((one for one in (tool, *type(tool).__mro__) if inner in getattr(one, "__dict__", ())), None)
        if owner is tool and is_async:
            setattr(tool, inner, _as_coroutine(vars(tool)[inner]))
        if owner is not None:
            record_uses(owner, inner, about_inner, passing=passing)
        with ContextValue(entered, (None if owner is tool else tool, (tool, *args), kwargs)):
            yield

    @functools.wraps(enter)
    def call(tool: Any, *args: Any, **kwargs: Any) -> Any:
        with entering(tool, args, kwargs):
            return enter(tool, *args, **kwargs)

    @functools.wraps(enter)
    async def acall(tool: Any, *args: Any, **kwargs: Any) -> Any:
        with entering(tool, args, kwargs):
            return await enter(tool, *args, **kwargs)

    made: Any = acall if is_async else call
    made.records_uses = True
    setattr(base, entry, made)


def _as_coroutine(fn: Any) -> Any:
    """``fn``, which gives an awaitable, as a function of which that is known."""
    if inspect.iscoroutinefunction(fn):
        return fn

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    return functools.wraps(fn)(call)


def is_of(package: str, function: Any) -> bool:
    """Whether a function or a method is the framework's own, and none that an author gave it."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == package


def declared(owner: Any) -> dict[str, Any]:
    """The fields of a class, and what they are declared to be; empty where that is not known."""
    try:
        return get_type_hints(owner) if isinstance(owner, type) else {}
    except (NameError, TypeError, AttributeError):  # a name that is there for type checkers alone
        return {}


def declared_kinds(owner: Any) -> dict[str, str]:
    """Return the JSON types (`runner.core.inputs.KINDS`) of a class's public fields, where they are not text."""
    public = [(name, of) for name, of in declared(owner).items() if not name.startswith("_")]
    return {name: kind for name, of in public if (kind := kind_of(of))}


def required(model: Any, base: type) -> list[str]:
    """Return the required fields of a pydantic model; none if its author's code makes it instead of ``base``'s."""
    ways = {one.info.mode for one in model.__pydantic_decorators__.model_validators.values()}
    if ways & {"before", "wrap"} or model.__init__ is not base.__init__:  # type: ignore[misc]  # only compared
        return []
    return [name for name, one in model.model_fields.items() if one.is_required() and one.validation_alias is None]


def as_output(value: Any) -> Any:
    """Return what an agent gave, as JSON: text as it is, models and dataclasses by their fields, the rest as text.

    It does not matter of which module a model's class is.
    """
    if isinstance(value, str):
        return str(value)
    try:
        return to_jsonable_python(value, by_alias=False, bytes_mode="base64", fallback=str)
    except (ValueError, RecursionError):  # it holds itself
        return str(value)


def _stop_while_read(place: str) -> None:
    module, _, path = place.partition(":")
    name, _, method = path.partition(".")
    owner = getattr(sys.modules.get(module), name, None)
    found = inspect.getattr_static(owner, method, None) if owner is not None else None
    unbound = getattr(found, "__func__", found)
    if unbound is None or hasattr(unbound, "stops_while_read"):
        return

    def run(*args: Any, **kwargs: Any) -> Any:
        if being_read() is not None:
            raise KickedOff(None)
        return unbound(*args, **kwargs)

    async def arun(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    wrapped: Any = functools.wraps(unbound)(arun if inspect.iscoroutinefunction(unbound) else run)
    wrapped.stops_while_read = True
    kind = next((kind for kind in (classmethod, staticmethod) if isinstance(found, kind)), None)
    setattr(owner, method, kind(wrapped) if kind is not None else wrapped)
