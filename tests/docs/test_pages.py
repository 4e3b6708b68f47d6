"""The pages that are followed do what they say: their snippets are typed in order, and what comes is what it shows."""

import pytest

pytestmark = pytest.mark.timeout(300)

TUTORIAL = "Five minutes"


def test_what_the_page_says(page, section, follow, files_of) -> None:
    """Each section, from an empty folder; the recipes have the tutorial's files."""
    given = files_of(page, TUTORIAL) if section.part == "How to" else []
    follow(page, [*given, *section.blocks])
