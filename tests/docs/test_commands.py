"""Whatever a page has its reader type or looks up is there: commands and their options, and the files it names."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from runner.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "ops/*/README.md", "examples/*/README.md")
    for path in ROOT.glob(pattern)
)

_COMMAND = re.compile(r"(?:^(?:\$ |\w+=\S+ )*|(?:&&|[|;]) +|/bin/)runner (?P<words>[^`|;&#>\n]*)")
_FENCE = re.compile(r"(?ms)^ *```(sh|console)\n(.*?)^ *```$")
_SPAN = re.compile(r"`([^`\n]+)`")


def commands(page: Path) -> list[list[str]]:
    """The words after `runner`, as typed in blocks and named in code spans."""
    text = page.read_text("utf-8")
    typed = [
        line
        for kind, block in _FENCE.findall(text)
        for line in block.replace("\\\n", " ").splitlines()
        if kind == "sh" or line.startswith("$ ")  # the others are what comes
    ]
    named = _SPAN.findall(re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
    found = [match["words"].strip() for line in [*typed, *named] for match in _COMMAND.finditer(line)]
    return [words.split() for words in found if words]


def unknown(words: list[str]) -> str:
    """What of it is no command and no option of one; "" for nothing."""
    context, command = click.Context(cli), cli
    given = list(words)
    while isinstance(command, click.Group) and given and not given[0].startswith("-"):
        found = command.get_command(context, given[0])
        if found is None:
            # `runner checkpoint WHERE` opens the browser
            return "" if command.name == "checkpoint" else f"no command: {' '.join(words)}"
        command, given = found, given[1:]
    if isinstance(command, click.Group):
        return ""
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    wrong = {word.partition("=")[0].rstrip(",)") for word in given if re.match(r"--?[a-z]", word)} - options
    return f"runner {' '.join(words)}: no option {', '.join(sorted(wrong))}" if wrong else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_is_there_with_its_options(page: Path) -> None:
    assert [wrong for words in commands(page) if (wrong := unknown(words))] == []


def test_what_is_not_there_is_found() -> None:
    assert commands(ROOT / "README.md")
    assert unknown(["submit", "crew.py", "--detach"]) == ""
    assert unknown(["sumbit", "crew.py"])
    assert unknown(["submit", "crew.py", "--dettach"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_is_named_is_there(page: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = set(listed.split())
    there = files | {parent.as_posix() for file in files for parent in Path(file).parents}
    named = re.findall(r"`((?:runner|tasks|providers|tests|ops|docs|examples)/[\w./-]+)`", page.read_text("utf-8"))
    assert [name for name in named if name.rstrip("/") not in there] == []
