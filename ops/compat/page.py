"""The examples of docs/frameworks.md as their reader has them: a file to write, and the command that submits it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
_SECTION = re.compile(r"^##+ (.+)\n((?:(?!##).*\n)*)", re.MULTILINE)
_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^`?runner submit ([^`\n]+)", re.MULTILINE)
_FILE = re.compile(r"# (\S+\.py)\n")


@dataclass(frozen=True)
class Example:
    """``code`` is what stands in ``file``, and ``words`` follow ``runner submit``, there where the file is."""

    title: str
    code: str
    file: str
    words: tuple[str, ...]


def code_blocks(page: str) -> list[str]:
    """All Python of the page."""
    return _CODE.findall(page)


def examples(page: str) -> Iterator[Example]:
    """What each section of the page says to submit, by the section's title."""
    for title, text in _SECTION.findall(page.replace("# Agents of any framework", "## Agents of any framework")):
        if (code := _CODE.search(text)) and (command := _COMMAND.search(text, code.end())):
            words = tuple(shlex.split(command[1]))
            named = _FILE.match(code[1])
            yield Example(title, code[1], named[1] if named else words[0], words)
