"""What pydantic refuses, in one line that tells a person what to change."""

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from runner.core.field_errors import format_field_errors


class Oven(BaseModel):
    model_config = ConfigDict(extra="forbid")

    degrees: int
    minutes: int = 10
    trays: list[int] = []

    @field_validator("minutes")
    @classmethod
    def _not_for_ever(cls, given: int) -> int:
        if given > 600:
            raise ValueError("nobody bakes that long")
        return given


def refused(**fields: Any) -> ValidationError:
    with pytest.raises(ValidationError) as found:
        Oven(**fields)
    return found.value


class Pair(BaseModel):
    one: int
    other: int


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"degrees": 1, "minute": 3}, "Oven has no field 'minute'; did you mean 'minutes'?"),
        ({"degrees": 1, "zzz": 3}, "Oven has no field 'zzz'"),
        ({}, "Oven needs 'degrees'"),
        ({"degrees": 1, "minutes": 601}, "Oven.minutes: nobody bakes that long"),
        ({"degrees": "hot"}, "Oven.degrees: Input should be a valid integer, unable to parse string as an integer "
                             "(got 'hot')"),
        ({"degrees": "x" * 50}, "Oven.degrees: Input should be a valid integer, unable to parse string as an integer"),
        ({"degrees": 1, "trays": [1, None]}, "Oven.trays.1: Input should be a valid integer (got None)"),
        ({"minutes": 601, "zzz": 1}, "Oven needs 'degrees' (and 2 more)"),
    ],
)  # fmt: skip
def test_it_is_said_in_a_line(fields: dict[str, Any], says: str) -> None:
    assert format_field_errors(refused(**fields)) == says


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ValidationError) as found:
        Pair()
    assert format_field_errors(found.value) == "Pair needs 'one' and 'other'"
