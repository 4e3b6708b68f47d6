"""What is stored never commands the terminal of who reads it."""

import io
import json
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from runner.cli.stdio import PlainConsole
from runner.core.plain_text import bare, json_text, printable

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://x\x1b\\\\\x9b31m\u202eend\rover"
RAW = ("\x1b", "\x07", "\x9b", "\u202e", "\r")

CREW = """
    from runner import Crew, Task
    HOSTILE = {hostile!r}

    def one(ctx):
        ctx.log(HOSTILE)
        ctx.progress(1, text=HOSTILE)
        return "first line\\n\\tsecond " + HOSTILE

    def two(ctx):
        if ctx.inputs["fails"]:
            raise ValueError(HOSTILE)
        return ctx.outputs["one"].raw

    crew = Crew(name="told", tasks=[Task(name="one", run=one, output_file="{{name}}.txt"), Task(name="two", run=two)])
"""


def clean(text: str) -> None:
    for raw in RAW:
        assert raw not in text, repr(text)


def test_no_verb_prints_a_control_character(cli: Any, fleet: Any, write_crew: Any) -> None:
    fleet.start("--concurrency", "1")
    crew = write_crew(CREW.format(hostile=HOSTILE))
    inputs = json.dumps({"fails": False, "name": HOSTILE.replace("/", "")})
    crew.with_name("inputs.json").write_text(inputs)
    submit = ("submit", crew, "--inputs", crew.with_name("inputs.json"), "--checkpoint-on", "task_completed")
    said = cli(*submit)
    clean(said.out + said.err)
    assert said.out == f"first line\n\tsecond {printable(HOSTILE)}\n", "newlines and tabs stay"
    failed = json.loads(cli(*submit, "--input", "fails:=true", "--json").out)
    run = json.loads(cli("runs", "--json").out)[-1]["run_id"]
    for arguments in (
        ("wait", run), ("show", run), ("events", run), ("files", run), ("files", run, "--out", "x"), ("runs",),
        ("checkpoint", "list", run), ("checkpoint", "show", run), ("diff", run, "main", "main"),
        ("wait", failed["run_id"]), ("show", failed["run_id"]), ("events", failed["run_id"]), ("doctor",),
        ("show", HOSTILE), ("submit", HOSTILE),
    ):  # fmt: skip
        for more in ((), ("--json",)):
            said = cli(*arguments, *more)
            clean(said.out + said.err)
            if more and said.out and arguments[0] != "events":
                json.loads(said.out)
    assert json.loads(cli("wait", run, "--json").out)["result"] == f"first line\n\tsecond {HOSTILE}"


def test_on_a_terminal_only_our_own_styles_are_obeyed() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=200, color_system="standard")
    table = Table(box=None)
    table.add_row(Text(HOSTILE, style="red"))
    for shown in (table, Text(HOSTILE), HOSTILE):
        console.print(shown, soft_wrap=True, markup=False)
    text = file.getvalue()
    assert "\x1b[31m" in text, "our red"
    for raw in ("\x1b]", "\x1b[2J", *RAW[1:]):
        assert raw not in text


@pytest.mark.parametrize("text", ["plain\n\ttext", "owl 🦉\u200d", "données"])
def test_what_commands_nothing_stays(text: str) -> None:
    assert printable(text) == text
    assert json.loads(json_text([text])) == [text]


def test_json_and_bare_cells() -> None:
    hostile = HOSTILE + "\ud800"
    clean(json_text(hostile))
    assert json.loads(json_text(hostile)) == hostile
    assert bare(HOSTILE) == "]0;owned[2J]8;;http://x\\\\31mendover"
    assert printable("a\r\nb") == "a\nb"
