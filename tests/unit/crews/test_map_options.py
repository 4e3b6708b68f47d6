"""A wrong ``on_error`` of a map is refused as early as it can be seen."""

import pytest
from pydantic import ValidationError

from runner import Task
from runner.crews.map_options import refuse_on_error

REFUSED = r"ctx\.map\(on_error='ignore'\): on_error is 'first', 'all' or 'collect'"


def test_one_that_is_written_in_a_task_is_refused_when_that_is_made() -> None:
    def plain(ctx):
        return ctx.map(str, [1], on_error="ignore")

    async def coroutine(context):
        return await context.amap(str, [1], at_once=2, on_error="ignore")

    for run in (plain, coroutine):
        with pytest.raises(ValidationError, match=REFUSED):
            Task(name="t", run=run)


def test_what_is_right_or_no_map_of_the_task_is_not() -> None:
    frames = object()

    def right(ctx):
        return ctx.map(str, [1], on_error="collect")

    def other(ctx):
        return frames.map(str, on_error="ignore"), ctx.map(str, [1], on_error=ctx.inputs["how"])

    for run in (right, other, print):
        assert Task(name="t", run=run)


def test_one_that_is_computed_is_refused_where_it_is_used() -> None:
    with pytest.raises(ValueError, match=REFUSED):
        refuse_on_error("ignore")
    for one in ("first", "all", "collect"):
        refuse_on_error(one)
