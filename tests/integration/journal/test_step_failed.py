"""A step that cannot be recorded fails the task, whatever is done about its error: no model is told of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.testing import ModelServer
from runner.testing.in_process import InProcess

SWALLOWS = """
import openai
from runner import Crew, Task, durable

client = openai.OpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0)


@durable
def save(place, size):
    with open(place, "wb") as file:
        file.truncate(size)
    return "saved"


def work(ctx):
    try:
        said = save(str(ctx.workdir / "data.bin"), 2**26)
    except {what} as error:
        said = str(error)
    if {asks}:
        try:
            client.chat.completions.create(model="gpt-4o", messages=[{{"role": "user", "content": said}}])
        except Exception:
            pass
    return said


crew = Crew(tasks=[Task(name="work", run=work)])
"""


@pytest.mark.parametrize(("what", "asks", "asked"), [("Exception", True, 0), ("BaseException", False, 0)])
def test_code_that_swallows_the_error_does_not_complete_the_task(
    what: str, asks: bool, asked: int, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    with ModelServer() as models:
        here = InProcess(tmp_path / "cache")
        run = here.submit(write_crew(SWALLOWS.format(url=models.url, what=what, asks=asks)))
        here.work()
        assert models.requests == asked
    record = here.runs.get(run)
    assert record is not None
    assert (record.status, "of new and changed files" in (record.error or "")) == ("failed", True), record
