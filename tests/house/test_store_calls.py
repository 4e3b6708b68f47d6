"""All that a task asks of the store waits where the store is away or refuses: there is one place that sees to it."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PLACE = {f"providers/redis/{name}.py" for name in ("outages", "connection", "pipelined", "waiting_client", "cluster")}

PATIENT = {("providers/redis/store.py", "__init__")}
"""Who makes the clients that wait, and the lines: what performs tasks."""

WAITING = {
    ("runner/client/store.py", "open_store"),
    ("tasks/broker.py", "check"),
    ("providers/redis/partitions.py", "urls_of"),
}
"""Who makes clients that wait for so long: for people, who are then told, with exit code 4."""

WATCHING = {
    ("tasks/heartbeat.py", "_workers"): "the heartbeat: a loop",
    ("tasks/jobs.py", "_hold"): "whether a claim holds: in a signal's handler, and again at a beat",
    ("tasks/jobs.py", "_mark"): "a checkpoint at a signal, as well as it can be had: in its handler",
    ("tasks/periodic.py", "run"): "what crashes left behind, and which models' clients are in use: a loop",
    ("tasks/steps.py", "make_supervisor"): "the supervisor: a loop",
    ("tasks/worker.py", "main"): "what a worker would like to know before it begins",
    ("runner/cli/health.py", "_workers"): "a health check: says what it finds, soon",
    ("runner/client/store.py", "open_store"): "a parent's loop, and who wants to know whether it refuses",
    ("providers/redis/provider.py", "_client"): "checkpoints of kickoff() here: waits for so long, then says so",
}
"""Who makes clients that ask once, and why it may."""

CATCHING = {
    "tasks/periodic.py",
    "tasks/jobs.py",
    "tasks/heartbeat.py",
    "tasks/transport.py",
    "tasks/supervisor.py",
    "providers/redis/restored_store.py",
    "providers/redis/workers.py",
    "providers/redis/provider.py",
    "runner/client/partitions.py",
    "runner/client/checkpoints/fleet.py",
    "runner/cli/__init__.py",
    "runner/cli/diagnosis.py",
    "runner/cli/fleet.py",
}
"""Loops that go on, and what people see. No other file names the errors of a store that is away or refuses."""

MODULES = {"connection", "outages", "waiting_client"}
TRANSIENT = {"TRANSIENT_ERRORS", "REFUSED", "REFUSES", "NotNow", "retry_while_unavailable", "not_now", "noticing"}


@functools.cache
def sources(root: Path) -> list[tuple[str, ast.Module]]:
    return [
        (name, ast.parse(path.read_text("utf-8")))
        for folder in ("runner", "tasks", "providers")
        for path in sorted((root / folder).rglob("*.py"))
        for name in [path.relative_to(root).as_posix()]
        if not name.startswith(("runner/tasks/", "runner/providers/", "runner/testing/")) and name not in PLACE
    ]


@functools.cache
def from_the_place(tree: ast.Module) -> frozenset[str]:
    """Names of ours that a file imports from there."""
    places = {"runner.providers.redis", *(f"runner.providers.redis.{name}" for name in (*MODULES, "pipelined"))}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in places]
    return frozenset(alias.name for node in found for alias in node.names)


def calls(tree: ast.Module, imported: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Calls of what is imported from there, or as ``connection.X`` or ``outages.X``: in which function, and X."""

    def walk(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = node.name
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id) if id in imported:
                    yield inside, id
                case ast.Attribute(ast.Name(module), attr) if module in MODULES & imported:
                    yield inside, attr
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return walk(tree, "")


def made(root: Path, *kinds: str) -> set[tuple[str, str]]:
    """Where clients of these kinds are made."""
    return {
        (name, function)
        for name, tree in sources(root)
        if (imported := from_the_place(tree) & {*kinds, *MODULES})
        for function, called in calls(tree, imported)
        if called in kinds
    }


def test_only_what_performs_tasks_has_clients_that_wait(root: Path) -> None:
    assert made(root, "patient", "PipelinedConnection") == PATIENT


def test_people_have_one_that_waits_for_so_long(root: Path) -> None:
    assert made(root, "waiting") == WAITING


def test_all_others_are_known_and_say_why_they_do_not(root: Path) -> None:
    assert made(root, "connect") == WATCHING.keys()


def test_nobody_else_looks_at_the_errors_that_pass(root: Path) -> None:
    imported = {name for name, tree in sources(root) if from_the_place(tree) & TRANSIENT}
    assert imported | {name for name, _ in made(root, *TRANSIENT)} == CATCHING


def test_redis_itself_is_opened_in_one_file(root: Path) -> None:
    opening = {"Redis", "from_url", "from_pool", "ConnectionPool", "Sentinel", "master_for", "StrictRedis"}
    found = set()
    for name, tree in sources(root):
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            word = getattr(called, "id", None) or getattr(called, "attr", None)
            if word in opening:
                found.add((name, word))
    assert found <= {("runner/adapters/crewai/redis_provider.py", "from_url")}


@pytest.mark.parametrize("folder", ["runner/engine", "runner/adapters", "runner/journal"])
def test_nothing_on_the_path_of_a_task_asks_for_another_connection(root: Path, folder: str) -> None:
    files = [tree for name, tree in sources(root) if name.startswith(folder)]
    assert files
    assert not any(from_the_place(tree) & {"connect"} for tree in files)


def tries_again(node: ast.AST) -> bool:
    """Whether it is a loop that goes on after one of these errors."""
    handlers = [
        one for loop in ast.walk(node) if isinstance(loop, ast.While) for one in ast.walk(loop)
        if isinstance(one, ast.ExceptHandler) and one.type is not None
    ]  # fmt: skip
    return any(
        {word.id for word in ast.walk(one.type) if isinstance(word, ast.Name)} & {"StoreUnreachable", *TRANSIENT}
        and not isinstance(one.body[-1], ast.Return | ast.Raise | ast.Break)
        for one in handlers
        if one.type is not None
    )


def test_a_loop_that_tries_again_pauses_for_longer_each_time_and_not_with_all_others(root: Path) -> None:
    """Thousands lose a store that is away at one moment: they would ask it at one moment, again and again."""
    found = [
        (name, node.name, ast.unparse(node))
        for name, tree in sources(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and tries_again(node)
    ]
    assert len(found) > 3
    for name, function, text in found:
        assert "backoff" in text or "jittered(" in text, f"{name}: {function} pauses as long each time"
