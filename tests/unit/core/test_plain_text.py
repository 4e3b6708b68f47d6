"""Names of classes in sentences."""

import pytest

from runner.core.plain_text import of_class, with_article


@pytest.mark.parametrize(
    "said",
    ["an Agent", "a Crew", "an int", "a User", "a UUID", "an Unknown", "an LLM", "an HTTPError", "a List", "a NoneType",
     "an Entity", "a European", "an _Answer", "a _Lock", "an Order", "a OneOf", "a set"],
)  # fmt: skip
def test_a_name_has_the_article_that_is_spoken(said: str) -> None:
    assert with_article(said.split()[1]) == said


def test_a_value_is_named_by_its_class() -> None:
    assert (of_class(object()), of_class({}), of_class(None)) == ("an object", "a dict", "a NoneType")
