"""Forks of crews, and outputs and inputs that a person changes."""

from typing import Any

import pytest
from pydantic import BaseModel

from runner import LLM, Agent, CheckpointConfig, Crew, JsonProvider, Process, Task, TaskOutput, tool
from runner.core.errors import BadInput
from runner.testing import Answer, Call, ModelRequest, ModelServer


def done(text: str) -> Any:
    return lambda ctx: text


def test_a_fork_writes_beside_the_original(chain, place):
    chain.die("d")
    living = chain.crew()
    fork = Crew.fork(chain.from_(place.at(1)), branch="try/one")
    fork.kickoff()
    assert [(i.branch, i.parent_id) for i in place.infos[3:]] == [
        ("try/one", place.infos[1].id), ("try/one", place.infos[3].id),
    ]  # fmt: skip
    auto = Crew.fork(chain.from_(place.at(1)))
    again = Crew.fork(chain.from_(place.at(1)))
    auto.kickoff()
    again.kickoff()
    names = {info.branch for info in place.infos} - {"main", "try/one"}
    assert len(names) == 2
    assert all(name.startswith(f"fork/{place.infos[1].id}_") for name in names)
    with pytest.raises(ValueError, match="escapes checkpoint directory"):
        Crew.fork(chain.from_(place.at(1)), branch="../../etc")
    assert living.tasks


def test_a_fork_of_a_branchs_own_directory_is_beside_the_branch(tmp_path):
    crew = Crew(tasks=[Task(name="a", run=done("A"))], checkpoint=CheckpointConfig(location=str(tmp_path)))
    crew.kickoff()
    fork = Crew.fork(CheckpointConfig(restore_from=tmp_path / "main"), branch="x/y")
    fork.tasks[0].output = None
    fork.kickoff()
    infos = JsonProvider().checkpoints(str(tmp_path))
    assert [(one.branch, one.parent_id) for one in infos] == [("main", None), ("x/y", infos[0].id)]
    again = Crew.fork(CheckpointConfig(restore_from=tmp_path / "x/y"), branch="z")
    again.tasks[0].output = None
    again.kickoff()
    assert [one.branch for one in JsonProvider().checkpoints(str(tmp_path))] == ["main", "x/y", "z"]


def test_an_edited_output_runs_again_what_was_made_from_it_and_nothing_else(place):
    """b is made from a; c reads nothing; d is made from b and c; e names c only."""
    ran: list[str] = []

    def work(ctx: Any) -> str:
        ran.append(ctx.task.name)
        return f"{ctx.task.name}({' '.join(o.raw for o in ctx.context)})"

    def crew() -> Crew:
        a, c = Task(name="a", run=work), Task(name="c", run=work, context=[])
        b = Task(name="b", run=work, context=[a])
        d, e = Task(name="d", run=work, context=[b, c]), Task(name="e", run=work, context=[c])
        return Crew(tasks=[a, b, c, d, e], process=Process.graph, checkpoint=CheckpointConfig(location=place.location))

    crew().kickoff()
    ran.clear()
    mine = crew()
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    fork.tasks[0].output = TaskOutput(raw="edited")
    result = fork.kickoff()
    assert ran == ["b", "d"]
    assert [o.raw for o in result.tasks_output] == ["edited", "b(edited)", "c()", "d(b(edited) c())", "e(c())"]
    assert mine.tasks[0].output is None


@pytest.mark.parametrize("edit", ["text", "json", "in place"])
def test_text_and_json_of_an_edited_output_stay_the_same_thing(place, edit):
    """A person changes one of the two, and both are what they meant."""

    def crew() -> Crew:
        words = Task(name="words", run=lambda ctx: ["owl", "bat"])
        first = Task(name="first", run=lambda ctx: ctx.outputs["words"].json_dict[0] + ctx.outputs["words"].raw)
        return Crew(tasks=[words, first], checkpoint=CheckpointConfig(location=place.location))

    mine = crew()
    mine.kickoff()
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    output = fork.tasks[0].output
    assert output is not None
    if edit == "text":
        output.raw = '["hen"]'
    elif edit == "json":
        output.json_dict = ["hen"]
    else:
        output.json_dict[:] = ["hen"]
    assert fork.kickoff().raw == 'hen["hen"]'
    assert mine.tasks[1].output.raw == 'owl["owl", "bat"]'

    refused = Crew.fork(CheckpointConfig(restore_from=place.at(1)))
    refused.tasks[0].output.raw = "hen"
    with pytest.raises(BadInput, match="the output of task 'words' is JSON, but the edit is not: Expecting"):
        refused.kickoff()


class Place(BaseModel):
    n: int


def test_an_output_may_be_edited_as_its_model(place):
    def crew() -> Crew:
        first = Task(name="first", run=lambda ctx: Place(n=3), output_pydantic=Place)
        second = Task(name="second", run=lambda ctx: f"at {ctx.outputs['first'].pydantic.n}")
        return Crew(tasks=[first, second], checkpoint=CheckpointConfig(location=place.location))

    mine = crew()
    mine.kickoff()
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    assert fork.tasks[0].output is not None
    fork.tasks[0].output.pydantic = Place(n=9)
    result = fork.kickoff()
    assert (result.raw, result.tasks_output[0].json_dict) == ("at 9", {"n": 9})
    assert mine.tasks[1].output.raw == "at 3"
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    assert fork.tasks[0].output.pydantic == Place(n=9)
    fork.tasks[0].output.pydantic.n = 10
    assert fork.kickoff().raw == "at 10"


def test_a_model_with_more_than_was_given_is_no_edit(place):
    ran: list[str] = []

    class Wide(BaseModel):
        n: int
        more: int = 7

    first = Task(name="first", run=lambda ctx: ran.append("first") or {"n": 1}, output_pydantic=Wide)
    second = Task(name="second", run=lambda ctx: ran.append("second") or ctx.outputs["first"].pydantic.more)
    living = Crew(tasks=[first, second], checkpoint=CheckpointConfig(location=place.location))
    living.kickoff()
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    assert fork.kickoff().raw == "7"
    assert ran == ["first", "second"]


def test_inputs_of_a_fork_may_be_edited_where_they_stand(place):
    task = Task(name="a", run=lambda ctx: f"{ctx.inputs['x']} {ctx.inputs['deep']['y']}")
    living = Crew(tasks=[task], checkpoint=CheckpointConfig(location=place.location))
    living.kickoff({"x": "1", "deep": {"y": 1}})
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    fork.checkpoint_inputs["x"] = "2"
    fork.checkpoint_inputs["deep"]["y"] = 2
    assert fork.kickoff().raw == "2 2"
    assert living.checkpoint_inputs == {"x": "1", "deep": {"y": 1}}


def test_what_a_task_really_read_counts_not_what_it_might_have(place):
    ran: list[str] = []

    def reads(*names: str) -> Any:
        def work(ctx: Any) -> str:
            ran.append(ctx.task.name)
            return " ".join(ctx.outputs[name].raw for name in names)

        return work

    def crew() -> Crew:
        tasks = [
            Task(name="a", run=reads()), Task(name="b", run=reads()),
            Task(name="c", run=reads("b")), Task(name="d", run=reads("a")),
        ]  # fmt: skip
        return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location))

    crew().kickoff()
    ran.clear()
    living = crew()
    fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
    fork.tasks[0].output = TaskOutput(raw="edited")
    assert fork.kickoff().raw == "edited"
    assert ran == ["d"]
    assert living.tasks


def test_an_output_that_was_removed_is_made_again(chain, place):
    chain.crew().kickoff()
    chain.ran.clear()
    living = chain.crew()
    fork = Crew.fork(chain.from_(place.at(-1)))
    fork.tasks[2].output = None
    fork.kickoff()
    assert chain.ran == ["c", "d"]
    assert living.tasks


def test_a_fork_with_another_input_does_again_what_used_it_and_a_resume_does_not(place):
    ran: list[str] = []

    def says(text: Any) -> Any:
        def work(ctx: Any) -> str:
            ran.append(ctx.task.name)
            return str(text(ctx))

        return work

    def crew() -> Crew:
        tasks = [
            Task(name="a", run=says(lambda ctx: "a")),
            Task(name="b", run=says(lambda ctx: ctx.inputs["topic"])),
            Task(name="c", description="On {topic}", run=says(lambda ctx: ctx.task.description)),
            Task(name="d", run=says(lambda ctx: ctx.outputs["b"].raw)),
            Task(name="e", run=says(lambda ctx: ctx.inputs["other"])),
        ]
        return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location))

    crew().kickoff({"topic": "owls", "other": 1})
    ran.clear()
    living = crew()
    there = CheckpointConfig(restore_from=place.at(-1))
    assert living.kickoff({"topic": "hens"}, from_checkpoint=there).tasks_output[1].raw == "owls"
    assert ran == []
    result = Crew.fork(there).kickoff({"topic": "hens"})
    assert ran == ["b", "c", "d"]
    assert [o.raw for o in result.tasks_output] == ["a", "hens", "On hens", "hens", "1"]


@pytest.mark.parametrize(
    ("change", "says", "paid"), [("nothing", "On owls.", 1), ("input", "On hens.", 3), ("edit", "On owls.", 3)]
)
def test_an_agent_in_flight_begins_again_in_a_fork_that_changes_what_it_works_on(place, change, says, paid):
    # Given an agent that dies in the second of its three calls' tools, and a checkpoint of that moment
    dies = [True]

    @tool
    def look(turn: int) -> str:
        """Looks."""
        if turn == 1 and dies:
            raise KeyboardInterrupt
        return "seen"

    def answers(request: ModelRequest) -> Any:
        asked = str(request.body["messages"][-1 if not request.turn else 1]["content"]).splitlines()[0]
        return [Call("look", {"turn": request.turn})] if request.turn < 2 else Answer(asked)

    with ModelServer(answers) as server:
        agent = Agent(role="r", goal="g", llm=LLM("openai/m", base_url=server.url, api_key="k"), tools=[look])

        def crew() -> Crew:
            tasks = [Task(name="a", run=done("a")), Task(name="b", description="On {topic}.", agent=agent)]
            return Crew(
                tasks=tasks, checkpoint=CheckpointConfig(location=place.location, on_events=["llm_call_completed"])
            )

        with pytest.raises(KeyboardInterrupt):
            crew().kickoff({"topic": "owls"})
        dies.clear()
        before = server.paid
        # When it is forked
        living = crew()  # which the fork has its code from
        fork = Crew.fork(CheckpointConfig(restore_from=place.at(-1)))
        assert living is not fork
        if change == "edit":
            fork.tasks[0].output.raw = "other"
        # Then it goes on from its calls if nothing changes, and else asks anew
        assert fork.kickoff({"topic": "hens"} if change == "input" else None).raw == says
        assert server.paid - before == paid
