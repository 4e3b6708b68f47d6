"""Loads the Lua scripts from files and calls them with named arguments.

A script file begins with comments that say what it does, then ``-- KEYS a b``, ``-- ARGV c:text d:int`` and
``-- USES lib``. The names become locals; ``USES`` brings in ``lua/lib/*.lua`` in that order; a call of a key builder of
`keys` becomes what it builds. All of that shares line 1 with the file's first comment, so Redis reports true line
numbers.

A script that fails has changed nothing: Redis does not undo what it wrote. So all that can fail comes before the first
write: what is given is checked here, what is stored is looked at by ``lua/lib/intact.lua``. What the server refuses (no
memory, no replica, a full disk) it refuses at a script's first write, never later; that needs no flags of the script.
What its user may not do it asks before, with each call, as rights may be taken at any time: for each command one
question, with a key that stands for all of them (`rights`), and for those to a queue with that. A test calls each
script with each argument broken, each key of another type, each right missing, and on servers that refuse.

What follows a slot's colon is its type. Each but ``text`` is a function in ``lua/types/*.lua``, which returns what the
local holds (JSON comes decoded; ``NAME_text`` is as it was given) or refuses the call before anything was written. A
type that ends in ``?`` allows "" as well: nil, where it would have been decoded. Of type ``rest`` is a last slot that
stands for any number of texts: its local says how many arguments stand before them in ``ARGV``.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, partial
from importlib.resources import files
from json.encoder import encode_basestring
from typing import Any, Protocol

import hiredis
from redis.exceptions import NoScriptError

from runner.core.plan import Plan, PlannedTask, queue_for
from runner.providers.records import EVENTS_KEPT, EVENTS_PER_TASK
from runner.providers.redis import envelope, rights, stream
from runner.providers.redis.keys import TEMPLATES, branch_key, home_of, key, run_key
from runner.providers.redis.protocol import PROTOCOL

_SLOTS = re.compile(r"^-- (KEYS|ARGV|USES) (.+)$", re.MULTILINE)
_CALLED = re.compile(r"\bpcall\((\w+)|\b(\w+)\(")  #: functions, and what pcall would call
_KEY = re.compile(rf"\b({'|'.join(TEMPLATES)})\(")
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[](),[{}]')
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_COMMAND = re.compile(r'(?:call|\basked|\badd_all)\("([A-Z]+)"')
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_DEFINED = re.compile(r"local (?:function )?(\w+)")
_AS_GIVEN = ("text", "int")  #: types of which the local holds the text itself
_FOLDER = files("runner.providers.redis").joinpath("lua")

_READS = frozenset(
    re.findall(
        r"\w+",
        "EXISTS GET HEXISTS HGET HGETALL HKEYS HLEN HMGET HSTRLEN LINDEX LLEN LRANGE MGET PTTL SCARD SMEMBERS "
        "SRANDMEMBER TIME TYPE XLEN XREVRANGE ZCARD ZRANGE ZRANGEBYSCORE ZREVRANGE ZSCORE",
    )
)
"""The commands of scripts that write nothing."""

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
        typed = [slot.partition(":")[::2] for slot in slots.get("ARGV", [])]
        self.argv: list[str] = [name for name, _ in typed]
        self.types: list[str] = [kind or "text" for _, kind in typed]
        body, libraries = _with_keys(source), list[str]()
        words = _words(body)
        for lib in reversed(slots.get("USES", [])):
            libraries = _used(_library(clock if lib == "now" else lib), words) + libraries
        self.commands = sorted(set(_COMMAND.findall(" ".join([*libraries, body]))))
        if not _READS.issuperset(self.commands):
            if not rights.NEEDS.search(source):
                body = f"needs_all() {body}"
            ask = partial(
                rights.with_questions, keys=self.keys, commands=self.commands, tries="try" in slots.get("USES", [])
            )
            libraries, body = [rights.prelude(self.keys), *map(ask, libraries)], ask(body)
        self._has_rest = self.types[-1:] == ["rest"]
        kinds = [kind.rstrip("?") for kind in self.types if kind != "rest"]
        called = {name for text in [*libraries, body] for names in _CALLED.findall(text) for name in names}
        kinds += [kind for kind in _types() if kind in called]
        checks = [
            f"if #KEYS~={len(self.keys)} or #ARGV{'<' if self._has_rest else '~='}{len(self.argv) - self._has_rest} "
            'then wrong("what it was given","complete") end'
        ]
        binds = [f"local {key}=KEYS[{i}]" for i, key in enumerate(self.keys, 1)]
        numbers = [arg for arg, kind in typed if kind == "int"]
        for i, (arg, kind) in enumerate(zip(self.argv, self.types, strict=True), 1):
            kind = "text" if arg in numbers else kind
            binds.append(_bind(arg, f"ARGV[{i}]", kind) if kind != "rest" else f"local {arg}={i - 1}")
            if any(f"{arg}_text" in text for text in [*libraries, body]):
                binds.append(f"local {arg}_text=ARGV[{i}]")
        given = " ".join([*checks, *binds])
        types, words = list[str](), _words(" ".join([given, *libraries, body]))
        for kind in reversed(_with_those_used(["wrong", *kinds])):
            types = _used(_library(kind, "types"), words) + types
        start = f'local SCRIPT="{name}" local PROTOCOL={PROTOCOL}'
        self.text = " ".join([start, *types, given, _whole(numbers), *libraries, body]).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        self._order = (*self.keys, *self.argv)
        self._names = frozenset(self._order)

    def arguments(self, slots: dict[str, Any]) -> list[Any]:
        """The slots in the order Redis wants them, key count first. Raises TypeError on a wrong name."""
        if slots.keys() != self._names:
            raise TypeError(f"{self.name}.lua takes {self.keys + self.argv}, got {sorted(slots)}")
        found = [len(self.keys), *map(slots.__getitem__, self._order)]
        return found[:-1] + found[-1] if self._has_rest else found

    def at(self, client: Executor, *place: str, of: str = "", **slots: Any) -> Any:
        """Run it at a place: a run, a branch of it, a task there, as many of them as it is about.

        What it takes of that, of the store and of the time is filled in: keys are those of `keys` that the slots are
        named after, and ``of`` is the worker, or the bundle, whose they are. The ``slots`` are the others.
        """
        home = slots.get("home") or home_of(client)
        found = {"home": home, "stamp": stamp(), **dict(zip(("run_id", "name", "key"), place, strict=False))}
        parts = {"home": home, "worker": of, "sha": of}
        if place:
            found["run"] = run_key(place[0], home)
        if len(place) > 1:
            found["branch"] = parts["branch_key"] = branch_key(place[0], place[1], home)
            parts["name"] = place[-1]
        taken = self._names - slots.keys()
        keys = {slot: key(f"{slot}_key", **parts) for slot in taken.intersection(self.keys) - found.keys()}
        return self(client, **{slot: found[slot] for slot in taken & found.keys()}, **keys, **slots)

    def packed(self, **slots: Any) -> bytes:
        """The command, for a server that knows the script."""
        packed: bytes = hiredis.pack_command(("EVALSHA", self.sha, *self.arguments(slots)))
        return packed

    def __call__(self, client: Executor, **slots: Any) -> Any:
        """Run it: one round trip, two the first time a server sees it."""
        arguments = self.arguments(slots)
        try:
            return client.execute_command("EVALSHA", self.sha, *arguments)
        except NoScriptError:
            return client.execute_command("EVAL", self.text, *arguments)


class PackedScript:
    """A script whose ``first`` slots are always the same: these are packed once, and each call packs the others."""

    __slots__ = ("_head", "_skipped", "first", "script")  # each task has two

    def __init__(self, script: LuaScript, *first: Any) -> None:
        self.script, self.first = script, first
        rest = len(script.keys) + len(script.argv) - len(first)
        parts = hiredis.pack_command(("EVALSHA", script.sha, len(script.keys), *first))
        self._head = b"*%d\r\n%b" % (3 + len(first) + rest, parts[parts.index(b"\n") + 1 :])
        self._skipped = len(b"*%d\r\n" % rest)

    def __call__(self, client: Executor, *rest: str | bytes | int) -> Any:
        """Run it with the other slots, in their order: as `LuaScript` does."""
        try:
            packed: bytes = hiredis.pack_command(rest)  # type: ignore[arg-type]  # as `packed`, which would be a call
            return client.execute_command(self._head + packed[self._skipped :])
        except NoScriptError:
            return client.execute_command("EVAL", self.script.text, len(self.script.keys), *self.first, *rest)

    def packed(self, *rest: str | int) -> bytes:
        """Return the packed command."""
        packed: bytes = hiredis.pack_command(rest)  # type: ignore[arg-type]  # it says that they are one
        return self._head + packed[self._skipped :]


@cache
def load(name: str, clock: Clock = SERVER_CLOCK) -> LuaScript:
    """Return the script in ``lua/NAME.lua``."""
    return LuaScript(name, _FOLDER.joinpath(f"{name}.lua").read_text("utf-8"), clock)


def read() -> None:
    """Read all scripts, which a fork then has."""
    for name in names():
        load(name)


def preload_scripts(client: Any, *names: str) -> None:
    """Let the server know these scripts, in one round trip, so that the first call of each is as fast as the others.

    Where it refuses (an ACL may), that first call brings the script with it.
    """
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.script_load(load(name).text)
    pipe.execute(raise_on_error=False)


def names() -> list[str]:
    """Return the names of all scripts."""
    return sorted(p.name.removesuffix(".lua") for p in _FOLDER.iterdir() if p.name.endswith(".lua"))


def _bind(name: str, value: str, kind: str) -> str:
    """The local that holds an argument, once it is known to be of its type."""
    checked = f'{kind.rstrip("?")}({value},"{name}")'
    if kind == "text":
        return f"local {name}={value}"
    if kind.rstrip("?") in _AS_GIVEN:
        return f"local {name}={value}" + (f' if {name}~="" then {checked} end' if kind.endswith("?") else f" {checked}")
    return f'local {name}={value}~="" and {checked} or nil' if kind.endswith("?") else f"local {name}={checked}"


def _whole(numbers: list[str]) -> str:
    """The check that these are whole numbers: of all at once, which the server does in a quarter of the time."""
    if not numbers:
        return ""
    sizes = " or ".join(f"#{one}<1 or #{one}>15" for one in numbers)
    each = " ".join(
        f'if #{one}<1 or #{one}>15 or string.find({one},"%D") then wrong("{one}","a whole number") end'
        for one in numbers
    )
    return f'if {sizes} or string.find({"..".join(numbers)},"%D") then {each} end'


@cache
def _types() -> list[str]:
    return sorted(p.name.removesuffix(".lua") for p in _FOLDER.joinpath("types").iterdir())


def _with_those_used(kinds: list[str]) -> list[str]:
    """Types, each after those that it is made of."""
    found: list[str] = []
    for kind in kinds:
        if kind != "text" and kind not in found:
            source = _FOLDER.joinpath("types", f"{kind}.lua").read_text("utf-8")
            used = dict(_SLOTS.findall(source)).get("USES", "").split()
            found += [one for one in _with_those_used(used) if one not in found]
            found.append(kind)
    return found


@cache
def _library(name: str, folder: str = "lib") -> dict[str, str]:
    """What a library defines, by name, each as one line: whole-line comments go, line ends become blanks."""
    text = _FOLDER.joinpath(folder, f"{name}.lua").read_text("utf-8")
    for mark, value in _given().get(name, {}).items():
        text = text.replace(mark, value)
    found: dict[str, str] = {}
    for line in text.splitlines():
        if begins := _DEFINED.match(line):
            found[defined := begins[1]] = line
        elif line and not line.lstrip().startswith("--"):
            found[defined] += " " + line.strip()
    return {defined: _with_keys(one) for defined, one in found.items()}


def _used(definitions: dict[str, str], words: set[str]) -> list[str]:
    """Those of a library that are among the ``words`` of what comes after it, which then has theirs as well.

    The server makes each of them with every call.
    """
    found = list[str]()
    for name, one in reversed(definitions.items()):
        if name in words:
            found.insert(0, one)
            words |= _words(one)
    return found


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", text)))


@cache
def _given() -> dict[str, dict[str, str]]:
    """What libraries are given from here, by the words that stand for it."""
    kept = {"EVENTS_KEPT": str(EVENTS_KEPT), "EVENTS_PER_TASK": str(EVENTS_PER_TASK)}
    return {
        "emit": {"IN_SHORT": stream.lua(), **kept},
        "create": {"MESSAGE_PARTS": str(envelope.PARTS)},
        "send": {"MESSAGE": envelope.lua()},
        "waiting": {"JOB_NAME": f'"{envelope.JOB}"'},
    }


def _with_keys(body: str) -> str:
    """A body in which the keys are built where they are named: a function for each would be made with each call."""
    built, at = "", 0
    for call in _KEY.finditer(body):
        if call.start() < at:
            continue  # within what another one is built from
        arguments, end = _arguments(body, call.end())
        pieces = re.split(r"\{\w+\}", TEMPLATES[call[1]])
        values = [one if _NAME.fullmatch(one) else f"({one})" for one in map(_with_keys, arguments)]
        quoted = [f'"{piece}"' if piece else "" for piece in pieces]
        joined = [part for pair in zip(quoted, [*values, ""], strict=True) for part in pair if part]
        built += f"{body[at : call.start()]}({'..'.join(joined)})"
        at = end
    return built + body[at:]


def _arguments(body: str, at: int) -> tuple[list[str], int]:
    """The arguments of the call whose parenthesis was opened just before ``at``, and where it ends."""
    found, start, depth = [], at, 1
    for mark in _MARKS.finditer(body, at):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth == 0 or (depth == 1 and mark[0] == ","):
            found.append(body[start : mark.start()].strip())
            start = mark.end()
        if depth == 0:
            break
    return found, start


# -- what scripts take

_text = json.JSONEncoder(ensure_ascii=False).encode  #: `json.dumps` would make an encoder each time

LONGEST = 10**14  #: ms, 3,000 years: longer than any run is kept, and still counted exactly by the scripts


def milliseconds(seconds: float) -> int:
    """Return a time in milliseconds, as the scripts take it."""
    return int(min(seconds * 1000, LONGEST))


def flat(fields: Mapping[str, Any]) -> str:
    """Fields and values as the scripts take them."""
    return json.dumps([str(one) for pair in fields.items() for one in pair], ensure_ascii=False)


def stamp() -> str:
    """The time as checkpoint ids begin with it: UTC, to the second."""
    return _stamp_of(int(time.time()))


@lru_cache(maxsize=1)  # to format it, the C library looks each time for what time zone the machine is in
def _stamp_of(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(second))


def context_text(task: PlannedTask) -> str:
    """A task's context as the scripts take it: a JSON list of tasks."""
    return _text(task.context) if task.context else "[]"


def specifications(tasks: Iterable[PlannedTask], *, needs: int | None = None) -> str:
    """Return tasks as the JSON list that the scripts take.

    Of each: how many it waits for, all before it unless ``needs`` says how many; its context, its timeout in ms, its
    pool.
    """
    found = []
    for task in tasks:
        context = encode_basestring(context_text(task))
        text = f'"task":{encode_basestring(task.key)},"needs":{len(task.after) if needs is None else needs}'
        text += f',"context":{context},"timeout":"{milliseconds(task.timeout) if task.timeout else 0}"'
        found.append(f'{{{text},"pool":{encode_basestring(task.pool)}}}' if task.pool else f"{{{text}}}")
    return f"[{','.join(found)}]"


OWN_FIELDS = ("inputs", "beginning")  #: fields in which the runs of a batch differ
_NUMBERS = ("keep", "max_checkpoints")  #: fields with which scripts count
_FIELDS_FIRST = (
    *("like", "bundle", "module", "attr", "adapter", "plan", "crew", "checkpoint_on", "batch", "branch", "live"),
    *("protocol", "events"),
)
"""Those that a claim and a commit look for. A field of a small hash is searched for from the start."""


_last_begun: tuple[Plan, dict[str, str], str, dict[str, Any]] | None = None


def begun_runs(plan: Plan, fields: Mapping[str, str], batch: str = "") -> dict[str, Any]:
    """Return what runs of a plan with these fields have in common (``create_run.lua``), made once for many."""
    global _last_begun
    shared = {name: value for name, value in fields.items() if name not in OWN_FIELDS}
    last = _last_begun  # another thread may put its own there meanwhile
    if last is not None and last[0] is plan and last[1] == shared and last[2] == batch:
        return last[3]
    found = _begun_runs(plan, shared, batch)
    _last_begun = plan, shared, batch, found
    return found


def _begun_runs(plan: Plan, fields: Mapping[str, str], batch: str) -> dict[str, Any]:
    queue, crew, direct = fields["queue"], fields["crew"], bool(fields["envelope"])
    ready = plan.first
    every: dict[str, Any] = {
        **{name: value for name, value in fields.items() if name not in (*_NUMBERS, "envelope")},
        **({"batch": batch} if batch else {}),
        **{"status": "running", "branch": "main", "live": 1, "protocol": PROTOCOL, "events": 1},
        # Scripts of before would fill in an envelope: they put the job into the outbox instead.
        **{"tasks": len(plan.tasks), "envelope": ""},
        **({"direct": 1, "sends": len(ready)} if direct else {}),
    }
    numbers = {name: fields[name] for name in _NUMBERS}
    alike = flat({name: value for name, value in (every | numbers).items() if name != "batch"})
    every["like"] = hashlib.sha1(alike.encode(), usedforsecurity=False).hexdigest()[:16]
    return {
        "sha": fields["bundle"],
        "fields": flat({name: every.pop(name) for name in _FIELDS_FIRST if name in every} | every),
        **numbers,
        "queue": queue,
        "direct": int(direct),
        "on": fields.get("checkpoint_on", ""),
        "digest": fields["plan"],
        "plan": plan.to_json(),
        "ready": specifications(ready),
        "tasks_left": len(plan.tasks),
        "messages": [
            part
            for copy, task in enumerate(ready if direct else (), 1)
            for part in envelope.first_message(task.key, crew, queue_for(queue, task.pool), copy)
        ],
    }
