"""The deployment's files, and a crew to run on them."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder."""
    return ROOT


@pytest.fixture
def small_crew(write_crew: Callable[..., Path]) -> Path:
    """Two tasks, done at once."""
    return write_crew("""
        from runner import Crew, Task

        def first(ctx):
            return "one"

        def second(ctx):
            return ctx.outputs["first"].raw + ", two"

        crew = Crew(name="small", tasks=[Task(name="first", run=first), Task(name="second", run=second)])
    """)
