"""What installed frameworks say about crew files and projects before any code runs. Adapters fill `installed`."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from runner.core.plain_text import with_article


class Framework:
    """A package that crews are made with. Each field and method is a no-op to be overridden."""

    framework: str = ""
    """Its top-level module, as crew files import it; ``[tool.NAME]`` in a pyproject.toml declares a project of its."""

    modules: Mapping[str, str] = {}
    """All top-level modules of it and its kin, each with what installs it, as pip has it."""

    makers: tuple[str, ...] = ()
    """Those of `modules` that crew files import to make a crew, beside `framework`."""

    word: str = "crew"
    """What its users call what they make."""

    entries: tuple[str, ...] = ()
    """The functions of a project's ``main.py`` that its own command calls."""

    scripts: tuple[str, ...] = ()
    """The names in ``[project.scripts]`` of what kicks off a project of its, the likeliest first."""

    whose_error: str = ""
    """What is added to an error of pydantic's about a class of its: a newcomer would think that it is of ours."""

    data_crew: bytes = b""
    """The Python source that makes ``crew`` of a crew file that is data (``crew.jsonc``); its path is ``__file__``."""

    def is_agent(self, thing: object) -> bool:  # noqa: ARG002 - the name is for those who override it
        """Whether it is an agent that is a run of its own only where its file has nothing else that can be run."""
        return False

    def imported(self) -> None:
        """A crew file has imported it, in this process."""

    def named(self, folder: Path) -> dict[str, str]:  # noqa: ARG002 - the name is for those who override it
        """What a file of the framework's in a folder says is to be run, by name: ``path:object``, seen from there."""
        return {}

    def install(self, module: str) -> str:
        """What to do where one of its `modules` is missing; "" where that is not known."""
        return f"pip install '{self.modules[module]}'"


installed: list[Framework] = []
"""What the adapters that are installed say."""


def names() -> frozenset[str]:
    """The top-level modules that crew files import to make a crew."""
    return frozenset(name for one in installed for name in (one.framework, *one.makers) if name) | {"runner"}


def agents() -> frozenset[str]:
    """Those of `names` that agents are made with, and no crews."""
    return frozenset(name for one in installed if one.word == "agent" for name in _makers(one))


def modules() -> frozenset[str]:
    """The top-level modules of frameworks and their kin: what is imported from there is no crew of the file's."""
    return frozenset(module for one in installed for module in one.modules) | names()


def is_agent(thing: object) -> bool:
    """Whether it is a run of its own only where its file has nothing else that can be run."""
    return any(one.is_agent(thing) for one in installed)


def word_of(values: Iterable[object]) -> str:
    """What people call what is made of these values: "agent" where only a framework of agents makes something."""
    return "agent" if _words(values) == {"agent"} else "crew"


def makes(values: Iterable[object]) -> bool:
    """Whether something among these values of a file makes crews or agents, or is one."""
    return bool(_words(values))


def may_come_from(packages: Iterable[str]) -> bool:
    """Whether imported modules of these packages use a framework, or some plugin does not name its module."""
    if any(not _makers(one) and not type(one).__module__.startswith("runner.") for one in installed):
        return True
    tops, makers = set(packages), {name for one in installed for name in _makers(one)}
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in tops]
    found = modules_of(value for module in loaded for value in list(getattr(module, "__dict__", {}).values()))
    return any(f"{name}.".startswith(f"{maker}.") for name in found for maker in makers)


def modules_of(values: Iterable[object]) -> set[str]:
    """The names of the modules among these values, and of those that the others come from."""
    named = (one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None) for one in values)
    return {name for name in named if isinstance(name, str)}


def words_of(values: Iterable[object]) -> str:
    """All that these values of a file could have been made into."""
    found = _words(values)
    return "agent or graph" if found == {"agent"} else "crew or flow" if found else "crew, flow, agent or graph"


def _words(values: Iterable[object]) -> set[str]:
    found = set[str]()
    for value in values:
        of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        is_made = not isinstance(value, type | FunctionType | ModuleType)
        for module in {str(of), type(value).__module__} if is_made else {str(of)}:
            found |= {one.word for one in installed for name in _makers(one) if f"{module}.".startswith(f"{name}.")}
            if module.startswith(_OWN) and not isinstance(value, FunctionType | ModuleType):
                found.add(Framework.word)
    return found


_OWN = ("runner.crews.", "runner.flows.", "runner.agents.")


def _makers(one: Framework) -> tuple[str, ...]:
    return (one.framework, *one.makers) if one.framework else one.makers


def entries() -> frozenset[str]:
    """The functions of a ``main.py`` that the command of some framework calls."""
    return frozenset(name for one in installed for name in one.entries)


def scripts() -> tuple[str, ...]:
    """The names of scripts that kick a project off."""
    return tuple(name for one in installed for name in one.scripts)


def imported(module: str) -> None:
    """Tell the framework that is made with a module of that name, if one is, that a crew file has imported it."""
    for one in installed:
        if module == one.framework or any(name.partition(".")[0] == module for name in one.makers):
            one.imported()


def install(module: str, line: str = "") -> str:
    """Return what to do about a missing module, as a remark in parentheses; "" if no framework knows it.

    ``line`` is the author's line that imports it: of ``google.adk``, it may be ``google`` that is missing.
    """
    named = re.match(r"\s*(?:from|import)\s+([\w.]+)", line)
    module = named[1] if named and f"{named[1]}.".startswith(f"{module}.") else module
    known = [(one, name) for one in installed for name in one.modules if f"{module}.".startswith(f"{name}.")]
    return next((f" ({how})" for one, name in known if (how := one.install(name))), "")


def whose_error(model: object) -> str:
    """A remark on whose class it is that refuses a value, in parentheses; "" for the crew's own, and ours."""
    top = str(getattr(model, "__module__", "")).partition(".")[0]
    return next((f" ({one.whose_error})" for one in installed if top and top == one.framework), "")


def data_crew() -> bytes | None:
    """The source that makes a crew of a file that is data, if a framework has such files."""
    return next((one.data_crew for one in installed if one.data_crew), None)


def what_else(module: ModuleType, is_crew: Callable[[object], bool]) -> str:
    """What a module itself defines, crews first, for the person who expected a crew there."""
    own = [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and (
            not (inspect.isclass(value) or inspect.isroutine(value))
            or getattr(value, "__module__", None) == module.__name__
        )
    ]
    if not own:
        return "it defines nothing"
    own.sort(key=lambda found: not is_crew(found[1]))
    listed = ", ".join(f"{name} ({kind_in_words(value)})" for name, value in own[:6])
    more = f" and {len(own) - 6} more" if len(own) > 6 else ""
    return f"it defines {listed}{more}"


def not_a_crew(module: ModuleType) -> str:
    """That something is not a crew, or not an agent, as users of the file's framework call it."""
    return f"not {with_article(word_of(vars(module).values()))}"


def kind_in_words(value: object) -> str:
    """What a value is: a class, a function, or of which class."""
    if value is None:
        return "nothing"
    if inspect.isclass(value):
        return "a class"
    if inspect.isroutine(value):
        return "a function"
    return with_article(type(value).__name__)
