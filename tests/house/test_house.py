"""The rules of the house: lint, format, types, imports, sizes."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tokenize
import tomllib
from pathlib import Path

import pytest

from ..support.soak import in_soak

SCRIPTS = Path(sysconfig.get_path("scripts"))

#: The pure core: the standard library and pydantic, so that it can be tested without a socket.
CORE = ("core", "events", "journal", "snapshots", "engine", "crews", "adapters/crewai/import_paths.py")
#: These import no more than the standard library, and what is named.
NARROW = {
    "bundles": {"packaging", "pathspec", "pydantic"},
    "client/local_worker.py": set(),
    "client/embedded": set(),
    "flows": {"pydantic", "pydantic_core", "greenlet"},  # the executor, on the event loop of who kicks a flow off
    "modelserver": {"xllamacpp"},  # its engine of a real model, an extra: the rest is in every worker
}

LONGEST = 440
#: Files that may be longer, each with its reason.
LONGER: dict[str, str] = {
    "tests/worker/adapters/test_programs.py": "a few lines of code for each shape of a program",
    "tests/worker/adapters/styles.py": "the few files of each way to lay out a project",
    "tests/integration/providers/test_scripts.py": "one section for each script",
    "providers/records.py": "one record for each thing that a store returns",
    "providers/redis/claimed_steps.py": "a step's note and its record, by the same counts of what is under way",
    "runner/journal/records.py": "one method for each way to find a record, and to write one",
    "runner/core/encoding.py": "one section for each kind of value that a task may return",
    "tests/unit/core/test_encoding.py": "and one for each here",
    "tests/integration/bundles/test_bundle.py": "a few lines for each kind of file that is packed or left out",
}

#: The files besides its adapter that say CrewAI's name, each with its reason.
NAMED: dict[str, str] = {
    "runner/__init__.py": "its import paths are found by the first import of runner, for which nothing else is read",
    "runner/core/compatibility.py": "the names that stored data and code written for it have",
}


def check(*command: str, cwd: Path, **environment: str) -> None:
    """The command must succeed; what it said is the failure's message."""
    found = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if found.returncode:
        pytest.fail(f"{' '.join(command)}\n{found.stdout}{found.stderr}", pytrace=False)


def test_ruff_finds_nothing(root):
    check(str(SCRIPTS / "ruff"), "check", "--output-format=concise", ".", cwd=root)


def test_the_code_is_formatted(root):
    check(str(SCRIPTS / "ruff"), "format", "--check", ".", cwd=root)


@pytest.mark.soak  # half a minute, of which the tests of what it is asked need nothing
def test_mypy_finds_nothing(root):
    check(sys.executable, "-m", "mypy", cwd=root)


def test_mypy_is_strict_about_every_package(root):
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] is True
    assert settings["files"] == ["runner"]
    assert {name for name in ("tasks", "providers") if (root / "runner" / name).is_symlink()} == {"tasks", "providers"}
    relaxed = {key for override in settings["overrides"] for key in override} - {"module", "follow_imports"}
    assert relaxed == {"ignore_missing_imports", "disallow_untyped_decorators", "disallow_subclassing_any"}


def test_what_a_check_passes_over_has_its_reason_beside_it(root, files):
    """And nothing is addressed to mypy where mypy does not read."""
    passed_over = re.compile(r"#\s*(noqa|type: ignore)\b(.*)")
    reason = re.compile(r"(: [A-Z0-9, ]+ --? |\[[a-z, -]+\]  # )\S.{3,}")
    bare, unread = [], []
    for name in (name for name in files if name.endswith(".py") and not (root / name).is_symlink()):
        source = (root / name).read_text("utf-8")
        if not passed_over.search(source):
            continue
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT or not (found := passed_over.search(token.string)):
                continue
            where = f"{name}:{token.start[0]}: {token.string}"
            if not reason.match(found[2]):
                bare.append(where)
            if found[1] != "noqa" and not name.startswith(("runner/", "tasks/", "providers/", "examples/")):
                unread.append(where)
    assert (bare, unread) == ([], [])


def test_mypy_does_not_read_what_nothing_uses(root):
    """Parts of the vendors' clients, which are a third of its time. Whatever came from there would have no type."""
    overrides = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    skipped_all = [override["module"] for override in overrides if "follow_imports" in override]
    (skipped,) = [modules for modules in skipped_all if "crewai.*" not in modules]
    parts = {module.removesuffix(".*").split(".", 1)[0]: [] for module in skipped}
    for module in skipped:
        vendor, part = module.removesuffix(".*").split(".", 1)
        parts[vendor].append(part.split(".")[1])
    assert parts.keys() == {"anthropic", "openai"}
    for vendor, names in parts.items():
        code = (root / f"runner/llm/clients/{vendor}.py").read_text()
        used = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
        assert not used & {*names}, vendor
        assert not re.findall(rf"(?m)^\s*(?:from|import) {vendor}\.", code), "it is imported as a whole"


# -- imports


def contracts_hold(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / "lint-imports", "--no-logo", "--no-cache"],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip


def test_imports_point_one_way(root):
    found = contracts_hold(root)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.fixture(scope="module")
def planted(copy_repository):
    """Adds a line to a module of a copy and gives what lint-imports says of it."""
    there = copy_repository()

    def plant(file: str, line: str) -> subprocess.CompletedProcess[str]:
        path = there / file
        before = path.read_text() if path.exists() else None
        path.write_text((before or '"""A new module."""\n') + f"\n{line}\n")
        found = contracts_hold(there)
        path.write_text(before) if before is not None else path.unlink()
        return found

    return plant


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("runner/core/plan/plan.py", "import runner.client", "imports point one way"),
        ("providers/redis/keys.py", "from runner.tasks import app", "imports point one way"),
        ("runner/client/client.py", "import redis", "only providers.redis imports redis"),
        ("runner/client/store.py", "def later():\n    import celery", "only tasks imports Celery"),
        ("runner/brand_new.py", "", "imports point one way"),
        ("runner/journal/call_slots.py", "from runner.journal import journal", "no two rooms"),
        *in_soak(
            (
                "runner/journal/cancellation/cancel_scope.py",
                "from runner.providers.redis import keys",
                "imports point one way",
            ),
            ("providers/redis/runs.py", "from runner.engine import executor", "imports point one way"),
            ("providers/redis/envelope.py", "from kombu import Connection", "only tasks imports Celery"),
            ("runner/client/client.py", "import rich.console", "only cli imports rich"),
            ("runner/cli/inspection.py", "def later():\n    import textual", "only the browser imports textual"),
            ("runner/testing/resp.py", "import click", "only cli imports click"),
            ("runner/client/checkpoints/model.py", "from runner.cli.browser import wording", "imports point one way"),
        ),
    ],
)
def test_a_wrong_arrow_is_caught(planted, file, line, broken):
    found = planted(file, line)
    assert found.returncode != 0
    assert re.search(rf"^{re.escape(broken)}.* BROKEN", found.stdout, re.MULTILINE), found.stdout


NEWER = {"annotationlib"}  #: of the standard library from Python 3.14 on


def imported(file: Path) -> set[str]:
    """The top-level names of all that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports resolve from the real path in an editor; name it in full"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("room", [*CORE, *NARROW])
def test_the_core_imports_the_standard_library_and_pydantic(root, room):
    allowed = NARROW.get(room, {"pydantic", "pydantic_core"})
    path = root / "runner" / room
    files = [path] if path.suffix else list(path.rglob("*.py"))
    assert files
    for file in files:
        assert imported(file) - sys.stdlib_module_names - NEWER - {"runner"} <= allowed, file


def test_a_crew_file_pays_for_no_more_than_it_uses():
    code = "import sys, json, runner; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expensive = {"redis", "celery", "kombu", "flower", "click", "rich", "pathspec", "textual"}
    assert not expensive & set(json.loads(said))


# -- the repository


def test_no_python_file_is_long(root, files):
    lengths = {name: len((root / name).read_text("utf-8").splitlines()) for name in files if name.endswith(".py")}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST and name not in LONGER}
    assert too_long == {}, f"over {LONGEST} lines: give a part of it a module of its own"
    assert {name for name in LONGER if lengths.get(name, 0) <= LONGEST} == set(), "no longer an exception"


def test_no_file_names_a_place_of_one_machine(root, files):
    needle = "/".join(("", "work", ""))
    naming = []
    for name in files:
        path = root / name
        if path.is_symlink():
            continue
        data = path.read_bytes()
        if b"\0" not in data and re.search(rf"(?<![\w.}}]){needle}", data.decode("utf-8", "replace")):
            naming.append(name)
    assert naming == []


def test_only_its_adapter_says_the_name_of_a_framework(root, files):
    ours = [name for name in files if re.match(r"(runner|tasks|providers)/(?!adapters/crewai/)", name)]
    naming = {name for name in ours if (root / name).is_file() and b"crewai" in (root / name).read_bytes().lower()}
    assert naming == set(NAMED), "what it does otherwise is a hook of `AdapterPlugin`"


def test_the_tests_are_run_the_way_the_readme_says(root):
    command = "python -m pytest -n auto"
    run = (root / ".ci" / "run").read_text().splitlines()
    assert any(line.strip().startswith(f"{command} ") and line.endswith(' "$@"') for line in run)
    assert command in (root / "README.md").read_text()
    assert os.access(root / ".ci" / "run", os.X_OK)


def test_what_the_command_line_prints_goes_through_one_module() -> None:
    """There control characters of what is stored are spelled out; see `runner.core.plain_text`."""
    printing = re.compile(
        r"(?<![.\w])print\(|click\.(?:s?echo)|sys\.(?:stdout|stderr)\.write|json\.dumps|(?<!Plain)Console\("
    )
    allowed = {"stdio.py": ..., "options.py": "json.dumps"}  # `options` makes values comparable
    found = [
        f"{file.name}:{number}: {line.strip()}"
        for file in sorted((Path(__file__).parents[2] / "runner/cli").glob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (match := printing.search(line)) and allowed.get(file.name) not in (..., match[0])
    ]
    assert not found, found
