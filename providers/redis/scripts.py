"""The Lua scripts, loaded from files and called by names.

A script file begins with comments that say what it does, then ``-- KEYS a b``, ``-- ARGV c d`` and ``-- USES lib``.
The names become locals; ``USES`` brings in ``lua/lib/*.lua`` in that order; the key builders of `keys` come as Lua
functions where one is called. All of that shares line 1 with the file's first comment, so Redis reports true line
numbers.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from redis.exceptions import NoScriptError

from runner.providers.redis import stream
from runner.providers.redis.keys import TEMPLATES

_SLOTS = re.compile(r"^-- (KEYS|ARGV|USES) (.+)$", re.MULTILINE)
_FOLDER = files("runner.providers.redis").joinpath("lua")

Clock = str
SERVER_CLOCK: Clock = "now"
TEST_CLOCK: Clock = "test_now"
"""The library that defines ``now()``: the server's time, or a key that tests set."""


class Executor(Protocol):
    """What can run a command: a client, or one line of it."""

    def execute_command(self, *command: Any) -> Any:
        """Send a command and return its answer."""


class LuaScript:
    """One operation. Call it with a client and every slot by name."""

    def __init__(self, name: str, source: str, clock: Clock = SERVER_CLOCK) -> None:
        slots = {kind: names.split() for kind, names in _SLOTS.findall(source)}
        self.name = name
        self.keys: list[str] = slots.get("KEYS", [])
        self.argv: list[str] = slots.get("ARGV", [])
        binds = [f"local {key}=KEYS[{i}]" for i, key in enumerate(self.keys, 1)]
        binds += [f"local {arg}=ARGV[{i}]" for i, arg in enumerate(self.argv, 1)]
        libraries = [_library(clock if lib == "now" else lib) for lib in slots.get("USES", [])]
        body = " ".join([*libraries, source])
        builders = [_builder(key) for key in TEMPLATES if f"{key}(" in body]
        self.text = " ".join([*binds, *builders, body]).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        self._names = frozenset(self.keys + self.argv)

    def arguments(self, slots: dict[str, Any]) -> list[Any]:
        """The slots in the order Redis wants them, key count first. Raises TypeError on a wrong name."""
        if slots.keys() != self._names:
            raise TypeError(f"{self.name}.lua takes {self.keys + self.argv}, got {sorted(slots)}")
        return [len(self.keys), *(slots[key] for key in self.keys), *(slots[arg] for arg in self.argv)]

    def __call__(self, client: Executor, **slots: Any) -> Any:
        """Run it: one round trip, two the first time a server sees it."""
        arguments = self.arguments(slots)
        try:
            return client.execute_command("EVALSHA", self.sha, *arguments)
        except NoScriptError:
            return client.execute_command("EVAL", self.text, *arguments)


@cache
def load(name: str, clock: Clock = SERVER_CLOCK) -> LuaScript:
    """The script in ``lua/NAME.lua``."""
    return LuaScript(name, _FOLDER.joinpath(f"{name}.lua").read_text("utf-8"), clock)


def teach(client: Any, *names: str) -> None:
    """Let the server know these scripts, in one round trip, so that the first call of each is as fast as the others.

    Where it refuses (an ACL may), that first call brings the script with it.
    """
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.script_load(load(name).text)
    pipe.execute(raise_on_error=False)


def names() -> list[str]:
    """Every script there is."""
    return sorted(p.name.removesuffix(".lua") for p in _FOLDER.iterdir() if p.name.endswith(".lua"))


@cache
def _library(name: str) -> str:
    """A library as one line: whole-line comments go, line ends become blanks."""
    text = _FOLDER.joinpath("lib", f"{name}.lua").read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    text = " ".join(line for line in lines if line and not line.startswith("--"))
    return text.replace("TYPES_IN_SHORT", stream.lua()) if name == "emit" else text


@cache
def _builder(name: str) -> str:
    pieces = re.split(r"\{(\w+)\}", TEMPLATES[name])
    arguments = pieces[1::2]
    joined = [f'"{piece}"' if i % 2 == 0 else piece for i, piece in enumerate(pieces) if piece]
    return f"local function {name}({','.join(arguments)}) return {'..'.join(joined)} end"
