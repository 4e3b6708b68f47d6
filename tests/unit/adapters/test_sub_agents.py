"""Names of the kickoffs inside of a task."""

import pytest

from runner.adapters.crewai.kickoff_names import name_of


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"topic": "x2"}, "topic=x2 [3]"),
        ({"topic": "two\nlines", "n": 1}, "topic=two lines, n=1 [3]"),
        ({"text": "a" * 100}, f"text={'a' * 54}… [3]"),
        ({}, "Draft [3]"),
        (None, "Draft [3]"),
    ],
)
def test_a_part_is_named_by_its_inputs_and_its_number(inputs: dict[str, object] | None, name: str) -> None:
    assert name_of(inputs, "Draft", 3) == name
