"""Native crews: how one becomes a plan, and how a task of it is performed."""

import copy
import json
from typing import Any

import pytest
from pydantic import BaseModel

from runner import Agent, CheckpointConfig, ConditionalTask, Crew, Process, Task, TaskOutput
from runner.core import output as outputs
from runner.core import stored_output
from runner.core.errors import BadCrew, BadInput, TaskError
from runner.core.interpolation import interpolate
from runner.core.plan import Plan
from runner.crews.adapter import NATIVE
from runner.engine.adapters import adapter_of, is_crew, required
from runner.engine.work import Work
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne


def nothing(ctx: Any) -> str:
    return ""


def task(name: str, *context: Task, **fields: Any) -> Task:
    given = {"context": list(context)} if context else {}
    return Task(name=name, run=fields.pop("run", nothing), **given, **fields)


def plan(*tasks: Task, **fields: Any) -> Plan:
    return NATIVE.plan(Crew(tasks=list(tasks), **fields), "crew")


def after(made: Plan) -> dict[str, str]:
    """What each task waits for, as one word."""
    return {t.key: "".join(t.after) for t in made.tasks}


def perform(crew: Crew, key: str, done: dict[str, Any] | None = None, **inputs: Any) -> TaskOutput:
    """Perform one task, given what the others returned."""
    made = NATIVE.plan(crew, "crew")
    have = {}
    for name, value in (done or {}).items():
        raw, data = outputs.from_value(value)
        have[name] = TaskOutput(name=name, raw=raw, json_dict=data)
    work = Work(
        run_id="r-1", branch="main", attempt=2, key=key, plan=made, inputs=inputs,
        journal=Journal({}, _Forgets(), CancelScope()), fetch=lambda keys: {k: have[k] for k in keys},
        note=lambda kind, text: notes.append((kind, text)),
    )  # fmt: skip
    notes: list[tuple[str, str]] = []
    raw, data = stored_output.load(json.loads(NATIVE.perform(crew, work)))
    return TaskOutput(name=key, raw=raw, json_dict=data, agent=repr(notes) if notes else "")


class _Forgets(OneByOne):
    def begin_step(self, *entry: Any, **about: Any) -> None: ...

    def record_step(self, step: str, value: str, **about: Any) -> None: ...

    def mark_sent(self, entry: Any) -> None: ...

    def drop_step(self, *entry: Any, **about: Any) -> None: ...


# -- planning


def test_one_after_the_other():
    assert after(plan(task("a"), task("b"), task("c"))) == {"a": "", "b": "a", "c": "b"}


def test_side_by_side_until_the_next_synchronous_task():
    made = plan(
        task("a"), task("b", async_execution=True), task("c", async_execution=True), task("d"),
        task("e", async_execution=True),
    )  # fmt: skip
    assert after(made) == {"a": "", "b": "a", "c": "a", "d": "bc", "e": "d"}


def test_context_restricts_what_a_task_is_given_and_not_the_order():
    a, b = task("a"), task("b")
    made = plan(a, b, task("c", a))
    assert after(made) == {"a": "", "b": "a", "c": "b"}
    assert made.by_key["c"].context == ("a",)
    assert made.by_key["b"].context is None, "left out: every earlier task"


def test_context_none_and_empty_is_none_at_all():
    made = plan(task("a"), Task(name="b", run=nothing, context=[]), Task(name="c", run=nothing, context=None))
    assert (made.by_key["b"].context, made.by_key["c"].context) == ((), ())


def test_context_among_tasks_side_by_side_is_waited_for():
    a = task("a", async_execution=True)
    b = task("b", a, async_execution=True)
    c = task("c", async_execution=True)
    assert after(plan(a, b, c, task("d"))) == {"a": "", "b": "a", "c": "", "d": "abc"}


def test_context_that_was_said_twice_counts_once():
    a = task("a")
    assert plan(a, task("b", a, a)).by_key["b"].context == ("a",)


def test_a_graph_waits_for_its_context_and_nothing_else():
    late = task("late")
    made = plan(task("b", late), task("c"), late, process=Process.graph)
    assert after(made) == {"b": "late", "c": "", "late": ""}
    assert made.result == "late"


def test_context_survives_a_copy_of_the_crew():
    a = task("a")
    crew = Crew(tasks=[a, task("b", a), task("c")])
    for same in (copy.deepcopy(crew), crew.model_copy(deep=True)):
        assert NATIVE.plan(same, "crew") == NATIVE.plan(crew, "crew")


def test_names():
    made = plan(Task(run=nothing), task("b"), Task(run=nothing))
    assert [t.key for t in made.tasks] == ["task_1", "b", "task_3"]
    assert made.crew == "crew"
    assert plan(task("a"), name="mine").crew == "mine"
    with pytest.raises(BadCrew, match="two tasks are called 'task_2'"):
        plan(task("task_2"), Task(run=nothing))
    with pytest.raises(BadCrew, match="has 201 characters: at most 200 are allowed"):
        plan(task("x" * 201))
    assert plan(task("naïve | {odd}: name/№1")).result == "naïve | {odd}: name/№1"


def test_the_inputs_are_the_placeholders():
    owl = Agent(role="{role}", goal="{goal}", backstory="{backstory}")
    made = plan(
        task("a", description="{topic} and {topic}", expected_output="{form}", agent=owl, output_file="{file-name}.md"),
        task("b", description='{"json": 1} {} { x } {1} {{', expected_output="{0}"),
        agents=[Agent(role="{other}")],
    )
    assert made.inputs == {"topic", "form", "role", "goal", "backstory", "file-name", "other"}


def test_settings_of_tasks():
    crew = Crew(tasks=[task("a", timeout=2.5, max_retries=3, retry_delay=0.1), task("b", output_file="b.md")])
    assert [t.timeout for t in NATIVE.plan(crew, "crew").tasks] == [2.5, None]
    assert [NATIVE.retry(crew, key) for key in "ab"] == [(3, 0.1), (0, 1.0)]
    assert NATIVE.output_files(crew) == {"b": "b.md"}


@pytest.mark.parametrize(
    ("setting", "events"),
    [(None, ["task_completed"]), (True, ["task_completed"]), (False, None), (CheckpointConfig(on_events=["*"]), ["*"])],
)
def test_checkpoints_are_on_unless_the_crew_says_no(setting, events):
    config = NATIVE.checkpoints(Crew(tasks=[task("a")], checkpoint=setting))
    assert (config and config.on_events) == events


def test_which_adapter():
    crew = Crew(tasks=[task("a")])
    assert required(crew) is NATIVE
    assert is_crew(crew)
    assert adapter_of("crew") is None
    with pytest.raises(BadCrew, match=r"^a dict is not a crew that can be run$"):
        required({})


# -- performing


def test_what_a_task_sees():
    seen: dict[str, Any] = {}

    def look(ctx: Any) -> str:
        seen.update(
            vars(ctx),
            task=ctx.task,
            inputs=dict(ctx.inputs),
            context=[o.raw for o in ctx.context],
            names=list(ctx.outputs),
        )
        assert ctx.outputs["a"].raw == "one"
        assert ctx.outputs["b"].json_dict == {"n": 2}
        assert ctx.outputs["b"]["n"] == 2
        ctx.log("looked")
        ctx.progress(1, 3, "third")
        ctx.progress(0.5)
        return "seen"

    owl = Agent(role="looker of {topic}")
    c = task("c", run=look, description="Look at {topic}", expected_output="{form} of {missing}", agent=owl)
    out = perform(Crew(tasks=[task("a"), task("b"), c]), "c", {"a": "one", "b": {"n": 2}}, topic="owls", form="a list",
                  missing="x")  # fmt: skip
    assert (out.raw, out.json_dict) == ("seen", None)
    assert (seen["inputs"]["topic"], seen["run_id"], seen["branch"], seen["attempt"]) == ("owls", "r-1", "main", 2)
    assert (seen["task"].name, seen["task"].description) == ("c", "Look at owls")
    assert seen["task"].expected_output == "a list of x"
    assert seen["context"] == ["one", '{"n": 2}']
    assert seen["names"] == ["a", "b"]
    assert out.agent == repr([("task_log", "looked"), ("task_progress", "1/3 third"), ("task_progress", "0.5")])
    assert c.description == "Look at {topic}", "the crew's own task is as it was"


def test_declared_context_comes_in_its_order_and_others_can_be_had():
    def look(ctx: Any) -> str:
        return " ".join([o.raw for o in ctx.context] + [ctx.outputs["b"].raw])

    a, b, c = task("a"), task("b"), task("c")
    assert perform(Crew(tasks=[a, b, c, task("d", c, a, run=look)]), "d", {"a": "1", "b": "2", "c": "3"}).raw == "3 1 2"


def test_an_output_that_is_not_there_says_which_are():
    def look(ctx: Any) -> str:
        return ctx.outputs["colect"].raw

    crew = Crew(tasks=[task("collect"), task("b", run=look)])
    with pytest.raises(KeyError, match="'colect' is not a task that 'b' depends on; did you mean 'collect'"):
        perform(crew, "b", {"collect": ""})


class Report(BaseModel):
    title: str
    pages: int = 1


def as_model(ctx: Any) -> Report:
    return Report(title="Owls")


async def as_async(ctx: Any) -> dict[str, int]:
    return {"n": 1}


@pytest.mark.parametrize(
    ("run", "raw", "data"),
    [
        (lambda ctx: "text", "text", None),
        (lambda ctx: None, "", None),
        (lambda ctx: 3, "3", None),
        (lambda ctx: True, "true", None),
        (lambda ctx: "Käse".encode(), "Käse", None),
        (lambda ctx: {"ü": [1]}, '{"ü": [1]}', {"ü": [1]}),
        (lambda ctx: [1, "a"], '[1, "a"]', [1, "a"]),
        (lambda ctx: (1, 2), "[1, 2]", [1, 2]),
        (as_model, '{"title":"Owls","pages":1}', {"title": "Owls", "pages": 1}),
        (as_async, '{"n": 1}', {"n": 1}),
        (lambda ctx: TaskOutput(raw="r", json_dict={"a": 1}), "r", {"a": 1}),
    ],
)
def test_what_a_task_may_return(run, raw, data):
    out = perform(Crew(tasks=[task("a", run=run)]), "a")
    assert (out.raw, out.json_dict) == (raw, data)


@pytest.mark.parametrize("value", [object(), [object()], {"a": object()}, lambda: 1])
def test_what_it_may_not_return_is_said(value):
    says = (
        r"^task 'a' returned an? \w+( at \w+)?, which cannot be passed to the next task unchanged: return text, numbers"
    )
    with pytest.raises(TaskError, match=says):
        perform(Crew(tasks=[task("a", run=lambda ctx: value)]), "a")


def test_broken_text_is_told_apart_from_text():
    out = perform(Crew(tasks=[task("a", run=lambda ctx: {"page": b"\xff"})]), "a")
    assert out.json_dict == {"page": "/w=="}  # base64: JSON has no bytes
    with pytest.raises(TypeError, match="half of a surrogate pair"):
        perform(Crew(tasks=[task("a", run=lambda ctx: "broken \udcff")]), "a")


def test_its_code_sees_a_task_of_its_own():
    """With the inputs in its texts, under its name in the plan; what it writes there stays there."""
    seen = []

    def look(ctx):
        seen.append((ctx.task.name, ctx.task.description))
        ctx.task.description = "changed"
        seen.append((ctx.task.name, ctx.task.description))
        return "done"

    crew = Crew(tasks=[Task(run=look, description="on {topic}")])
    assert perform(crew, "task_1", topic="owls").raw == "done"
    assert seen == [("task_1", "on owls"), ("task_1", "changed")]
    assert crew.tasks[0].description == "on {topic}"


def test_a_text_alone_and_one_that_a_callback_sees_are_stored_alike():
    seen = []
    alone, heard = task("a", run=lambda ctx: "owls"), task("b", run=lambda ctx: "owls", callback=seen.append)
    crew = Crew(tasks=[alone, heard])
    assert perform(crew, "a").raw == perform(crew, "b").raw == "owls"
    assert [(output.name, output.raw) for output in seen] == [("b", "owls")]


def test_a_condition_needs_an_output_to_judge():
    alone = ConditionalTask(name="b", run=nothing, condition=bool)
    with pytest.raises(BadCrew, match=r"'b' has no earlier task .*: name one in its context$"):
        plan(task("a"), alone, process=Process.graph)


@pytest.mark.parametrize("field", ["output_pydantic", "output_json"])
def test_text_that_is_to_be_a_model(field):
    crew = Crew(tasks=[task("a", run=lambda ctx: '{"title": "Owls"}', **{field: Report}), task("b", run=read_title)])
    out = perform(crew, "a")
    assert out.json_dict == {"title": "Owls", "pages": 1}
    assert perform(crew, "b", {"a": out.json_dict}).raw == "Owls"


def read_title(ctx: Any) -> str:
    return ctx.outputs["a"].pydantic.title


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('{"titel": 1}', "the output of task 'a' is not a valid Report: title: Field required"),
        ("no JSON", "the output of task 'a' is not a valid Report: the whole: Invalid JSON: "),
        (
            {"title": "x", "pages": "many"},
            "the output of task 'a' is not a valid Report: pages: Input should be a valid integer",
        ),
    ],
)
def test_an_output_that_is_no_such_model(value, says):
    with pytest.raises(TaskError) as caught:
        perform(Crew(tasks=[task("a", run=lambda ctx: value, output_pydantic=Report)]), "a")
    assert str(caught.value).startswith(says)


def test_an_edited_output_that_is_no_such_model_is_named():
    crew = Crew(tasks=[task("a", run=as_model), task("b", run=read_title)])
    with pytest.raises(
        BadInput, match=r"^the output of task 'a' is not a valid Report \(title: Input .*; pages: .*: fork"
    ):
        perform(crew, "b", {"a": {"title": 3, "pages": "many"}})


def test_the_annotation_names_the_model():
    crew = Crew(tasks=[task("a", run=as_model), task("b", run=read_title)])
    assert perform(crew, "b", {"a": {"title": "Hens", "pages": 2}}).raw == "Hens"


def test_a_callback_gets_the_output():
    got: list[TaskOutput] = []
    perform(Crew(tasks=[task("a", run=as_model, callback=got.append, description="On {topic}")]), "a", topic="owls")
    assert (got[0].name, got[0].description, got[0].pydantic) == ("a", "On owls", Report(title="Owls"))


def test_steps_want_a_function():
    with pytest.raises(TypeError, match=r"^ctx.step\('fetch', fn, \*args\) takes a function, got str$"):
        perform(Crew(tasks=[task("a", run=lambda ctx: ctx.step("fetch", "url"))]), "a")


def test_only_what_is_there_is_put_in():
    assert interpolate("{a} {b} {}", {"a": 1}) == "1 {b} {}"
    assert interpolate("{a}", {"a": "{b}", "b": "no"}) == "{b}", "an input is not read again"
