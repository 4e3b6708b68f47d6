"""The examples of docs/frameworks.md and of each framework's page, as their reader has them: a file to write, and the
command that submits it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "frameworks.md", *sorted((DOCS / "frameworks").glob("*.md"))]
_TITLE = re.compile(r"# (.+)\n")
_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^`?runner submit ([^`\n]+)", re.MULTILINE)
_SHELL = re.compile(r"^```sh\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.py)\n")


@dataclass(frozen=True)
class Example:
    """``code`` is what stands in ``file``, and ``words`` follow ``runner submit``, there where the file is."""

    title: str
    code: str
    file: str
    words: tuple[str, ...]


def code_blocks() -> list[str]:
    """All Python of the pages."""
    return [code for page in PAGES for code in _CODE.findall(page.read_text())]


def commands(title: str) -> list[list[str]]:
    """What a page, by its title, says to type of ``runner`` about a run that is there: the words of each."""
    text = next(text for page in PAGES if (text := page.read_text()).startswith(f"# {title}\n"))
    _, _, section = text.partition("## Look at")
    block = _SHELL.search(section)
    return [shlex.split(line, comments=True)[1:] for line in block[1].splitlines()] if block is not None else []


def examples() -> Iterator[Example]:
    """What each page says to submit, by the page's title."""
    for text in (page.read_text() for page in PAGES):
        if (code := _CODE.search(text)) and (command := _COMMAND.search(text, code.end())):
            words, title = tuple(shlex.split(command[1])), _TITLE.match(text)
            named = _FILE.match(code[1])
            assert title is not None
            yield Example(title[1], code[1], named[1] if named else words[0], words)
