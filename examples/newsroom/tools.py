"""What the researcher may use: the files in `sources/`."""

from pathlib import Path
from typing import Literal

from runner import tool

SOURCES = Path(__file__).parent / "sources"
NAMES = tuple(sorted(path.name for path in SOURCES.glob("*.md")))

Name = Literal[NAMES]  # type: ignore[valid-type]  # the model may name those that are there, and no others


@tool
def list_sources() -> str:
    """List the sources there are, with their titles."""
    return "\n".join(f"{name}: {title(name)}" for name in NAMES)


@tool
def read_source(name: Name) -> str:
    """Read one source."""
    return (SOURCES / name).read_text("utf-8")


@tool
def search_sources(words: str) -> str:
    """Find the lines of all sources in which one of the words occurs."""
    wanted = [word.strip(".,?!\"'").lower() for word in words.split()]
    found = [
        f"{name}: {line.lstrip('- ')}"
        for name in NAMES
        for line in (SOURCES / name).read_text("utf-8").splitlines()
        if any(len(word) > 2 and word in line.lower() for word in wanted)
    ]
    return "\n".join(found[:20]) or f"nothing about {words!r}; there are: {', '.join(NAMES)}"


def title(name: str) -> str:
    """The heading of a source."""
    return (SOURCES / name).read_text("utf-8").splitlines()[0].lstrip("# ")
