"""Orders on files are carried out in this process, with the code of the crew file."""

import pytest

from runner.bundles.loader import load_target
from runner.bundles.target import parse_target
from runner.client.checkpoints.commands import Command
from runner.client.checkpoints.local import CrewHandler, made_with
from runner.client.checkpoints.model import Checkpoint, find
from runner.client.checkpoints.stored import StoredSource
from runner.core.errors import BadCheckpoint, BadCrew, BadInput, RunnerError, TaskError
from runner.providers.config import CheckpointConfig
from runner.providers.json import JsonProvider
from runner.providers.sqlite import SqliteProvider

from ....support.soak import in_soak

CREW = """
    import threading
    from pathlib import Path
    from runner import CheckpointConfig, Crew, Task

    HERE = Path(__file__).parent
    begun = threading.Event()

    def note(name):
        with (HERE / "trace").open("a") as out:
            out.write(name + " ")

    def collect(ctx):
        note("collect")
        return ["owl", "hen"]

    def sort(ctx):
        if (HERE / "slow").exists():
            begun.wait(0.5)
        note("sort")
        return " ".join(sorted(ctx.outputs["collect"].json_dict))

    def title(ctx):
        note("title")
        return "About birds"

    def write(ctx):
        begun.set()
        if (HERE / "broken").exists():
            raise LookupError("no ink")
        note("write")
        return f"{ctx.outputs['title'].raw}: {ctx.outputs['sort'].raw}, {ctx.inputs['style']}"

    tasks = [Task(name=f.__name__, run=f) for f in (collect, sort, title, write)]
    tasks[1].context = [tasks[0]]
    tasks[2].context = []
    crew = Crew(name="birds", tasks=tasks, checkpoint=CheckpointConfig(max_checkpoints=3))
"""


@pytest.fixture(params=["json", "sqlite"])
def location(request, tmp_path):
    """A place, and the provider for it."""
    return str(tmp_path / ("checkpoints" if request.param == "json" else "checkpoints.db"))


@pytest.fixture
def written(write_crew, location):
    """A kickoff of the crew that stopped at its last task, with checkpoints; the crew file and the place."""
    path = write_crew(CREW)
    (path.parent / "broken").touch()
    provider = SqliteProvider() if location.endswith(".db") else JsonProvider()
    crew = load_target(parse_target(str(path))).crew
    crew.checkpoint = CheckpointConfig(location=location, provider=provider, max_checkpoints=3)
    with pytest.raises(LookupError):
        crew.kickoff(inputs={"style": "dry"})
    (path.parent / "broken").unlink()
    (path.parent / "trace").unlink()
    return path, StoredSource(location)


def trace(path) -> list[str]:
    """The tasks that ran since."""
    file = path.parent / "trace"
    return sorted(file.read_text().split()) if file.exists() else []


def test_what_a_kickoff_wrote_is_shown_as_it_was(written):
    _, source = written
    [main] = source.branches()
    details = source.details(main.checkpoints[-1])
    assert [(task.key, task.status, task.output) for task in details.tasks] == [
        ("collect", "done", '["owl", "hen"]'), ("sort", "done", "hen owl"), ("title", "done", "About birds"),
        ("write", "pending", None),
    ]  # fmt: skip
    assert details.inputs == {"style": "dry"}
    assert details.entities[0].name == "birds"
    assert details.progress == (3, 4)
    assert details.events
    assert [task.is_json for task in details.tasks] == [True, False, False, False]


def test_resume_does_what_is_left(written):
    path, source = written
    result = CrewHandler(source, str(path)).execute(Command("resume", find(source, None)))
    assert result == "About birds: hen owl, dry"
    assert trace(path) == ["write"]
    [main] = source.branches()
    assert len(main.checkpoints) == 3, "the crew's own retention goes on"


def test_a_fork_with_an_edited_output_does_again_what_was_made_from_it(written):
    path, source = written
    start = find(source, None)
    command = Command("fork", start, "mine", edits={"collect": '["owl", "goose"]'})
    assert CrewHandler(source, str(path)).execute(command) == "About birds: goose owl, dry"
    assert trace(path) == ["sort", "write"]
    main, mine = source.branches()
    assert mine.name == "mine"
    assert mine.origin is not None
    assert (mine.origin.branch, mine.origin.checkpoint) == ("main", start.id)
    assert len(main.checkpoints) == 3, "the line that it left is as it was"
    then = {task.key: task.output for task in source.details(mine.checkpoints[-1]).tasks}
    assert then["collect"] == '["owl", "goose"]'


def test_what_is_done_again_comes_before_what_it_came_before(written):
    """Between the edited task and the last one, a task stands that nothing changes: the order still holds over it."""
    path, source = written
    (path.parent / "slow").touch()
    command = Command("fork", find(source, None), "mine", edits={"collect": '["owl", "goose"]'})
    load_target(parse_target(str(path))).begun.clear()
    assert CrewHandler(source, str(path)).execute(command) == "About birds: goose owl, dry"


def test_a_fork_without_changes_is_a_line_of_its_own(written):
    path, source = written
    assert CrewHandler(source, str(path)).execute(Command("fork", find(source, None))) == "About birds: hen owl, dry"
    assert trace(path) == ["write"]
    _, fork = source.branches()
    assert fork.name.startswith(f"fork/{find(source, None).parent}_")


def test_a_fork_with_another_input_does_again_what_may_have_used_it(written):
    path, source = written
    command = Command("fork", find(source, None), inputs={"style": "wet"})
    assert CrewHandler(source, str(path)).execute(command) == "About birds: hen owl, wet"
    assert trace(path) == ["collect", "sort", "title", "write"], "nobody knows what code reads"


def test_an_input_that_is_named_in_a_text_was_used_there():
    def task(key: str, **more):
        return {"key": key, "output": {"raw": ""}, **more}

    tasks = [
        task("a", description="Find {topic}"), task("b", description="Sort"), task("c", output_file="{topic}.txt"),
        task("d", code=True), task("e", description="In {tone}"),
        task("f", description="Find owls", checkpoint_original_description="Find {topic}"),
    ]  # fmt: skip
    stored = {"entities": [{"entity_type": "crew", "tasks": tasks}]}
    assert made_with(stored, {"topic": "owls"}) == {"a", "c", "d", "f"}
    assert made_with(stored, {}) == set()


def test_what_would_be_refused_is_refused_before_the_screen_is_left(written):
    path, source = written
    start = find(source, None)
    handler = CrewHandler(source, str(path))
    for command, message in (
        (Command("fork", start, "../../etc"), r"^Branch name escapes checkpoint directory: '\.\./\.\./etc'$"),
        (Command("fork", start, "main"), "^branch 'main' already exists: choose another name$"),
        (
            Command("fork", start, edits={"collect": "owls"}),
            "^the output of task 'collect' is JSON, but the edit is not",
        ),
    ):
        with pytest.raises(RunnerError, match=message):
            handler.check(command)
    handler.check(Command("fork", start, "other", edits={"collect": '["emu"]', "sort": "emu"}))
    handler.check(Command("resume", start))
    assert trace(path) == []


def test_an_edit_that_is_not_what_the_task_gives_is_refused(write_crew, tmp_path):
    path = write_crew("""
        from pydantic import BaseModel
        from runner import CheckpointConfig, Crew, Task

        class Page(BaseModel):
            title: str

        tasks = [Task(name="a", run=lambda ctx: Page(title="Owls"), output_pydantic=Page)]
        tasks.append(Task(name="b", run=lambda ctx: ctx.outputs["a"].pydantic.title))
        crew = Crew(tasks=tasks)
    """)
    crew = load_target(parse_target(str(path))).crew
    crew.checkpoint = CheckpointConfig(location=str(tmp_path / "checkpoints"))
    crew.kickoff()
    source = StoredSource(str(tmp_path / "checkpoints"))
    handler = CrewHandler(source, str(path))
    wrong, right = ({"a": text} for text in ('{"titel": "Hens"}', '{"title": "Hens"}'))
    for act in (handler.check, handler.execute):
        with pytest.raises(BadInput, match=r"^the output of task 'a' is not a valid Page \(title: Field required\)"):
            act(Command("fork", find(source, None), edits=wrong))
    assert handler.execute(Command("fork", find(source, None), edits=right)) == "Hens"


def test_what_cannot_be_is_said_in_a_line(written, write_crew):
    path, source = written
    start = find(source, None)
    handler = CrewHandler(source, str(path))
    with pytest.raises(BadInput, match="the output of task 'collect' is JSON, but the edit is not: "):
        handler.execute(Command("fork", start, edits={"collect": "owls"}))
    with pytest.raises(BadCrew, match="the crew file has no task 'colect'"):
        handler.execute(Command("fork", start, edits={"colect": "owls"}))
    (path.parent / "broken").touch()
    with pytest.raises(TaskError, match=r"^LookupError: no ink; what was completed is in .*checkpoints"):
        handler.execute(Command("resume", start))
    with pytest.raises(BadCrew, match="no crew, flow, agent or graph in it"):
        CrewHandler(source, str(write_crew("x = 1", "other")))
    assert trace(path) == []


def test_a_checkpoint_of_another_crew_is_refused(written, write_crew):
    _, source = written
    other = write_crew(CREW.replace('name="birds"', 'name="fish"').replace("f.__name__", "f.__name__.upper()"), "fish")
    with pytest.raises(BadCheckpoint, match="the checkpoint is of a crew with the tasks 'collect'"):
        CrewHandler(source, str(other)).execute(Command("resume", find(source, None)))


@pytest.mark.parametrize("location", ["json", *in_soak("sqlite")], indirect=True)
def test_the_whole_way_from_the_screen(play, written):
    path, source = written
    handler = CrewHandler(source, str(path))
    start: Checkpoint = find(source, None)

    async def story(screen):
        assert screen.app.chosen == start
        assert "3 of 4 tasks done" in screen.text
        await screen.press("o", "down", "down", "enter", "end")
        await screen.type("!")
        await screen.press("escape", "f")
        await screen.type("loud")
        await screen.press("enter")

    command = play(story, source, handler)
    assert command is not None
    assert handler.execute(command) == "About birds!: hen owl, dry"
    assert trace(path) == ["write"]
    assert [branch.name for branch in source.branches()] == ["main", "loud"]


FLOW = """
    from pathlib import Path
    from runner.flows import Flow, listen, start

    HERE = Path(__file__).parent

    class Tale(Flow):
        @start()
        def begin(self):
            self.state["words"] = 2
            return "once upon"

        @listen(begin)
        def go_on(self, text):
            if (HERE / "broken").exists():
                raise LookupError("no ink")
            self.state["words"] += 2
            return f"{text} a {self.state['time']}"
"""


@pytest.mark.parametrize("more", ["", "\n    tale = Tale()\n"], ids=["class", "flow"])
def test_a_flow_goes_on_too(write_crew, location, more):
    path = write_crew(FLOW + more)
    (path.parent / "broken").touch()
    module = load_target(parse_target(str(path)))
    provider = SqliteProvider() if location.endswith(".db") else JsonProvider()
    config = CheckpointConfig(location=location, provider=provider, on_events=["method_execution_finished"])
    with pytest.raises(LookupError):
        module.Tale(checkpoint=config).kickoff(inputs={"time": "time"})
    (path.parent / "broken").unlink()
    source = StoredSource(location)
    details = source.details(find(source, None))
    assert [(task.key, task.status, task.output) for task in details.tasks] == [
        ("begin", "done", "once upon"), ("go_on", "pending", None),
    ]  # fmt: skip
    assert (details.entities[0].kind, details.entities[0].name) == ("flow", "Tale")
    assert details.state["words"] == 2
    handler = CrewHandler(source, str(path))
    with pytest.raises(
        BadInput, match=r"only the outputs of a crew's tasks can be edited here: .* `runner fork RUN --edit"
    ):
        handler.check(Command("fork", find(source, None), "mine", edits={"begin": "now"}))
    assert handler.execute(Command("fork", find(source, None), "mine")) == "once upon a time"
    assert handler.execute(Command("resume", source.branches()[0].checkpoints[-1])) == "once upon a time"


def test_a_name_chooses_among_several(written, write_crew):
    _, source = written
    two = write_crew(CREW + "    other = Crew(name='birds', tasks=tasks)\n", "two")
    with pytest.raises(BadCrew, match="has 2 crews: crew, other; name one, as in"):
        CrewHandler(source, str(two))
    assert CrewHandler(source, f"{two}:other").entity.name == "birds"


AGENT = """
    from pathlib import Path
    from runner import Agent
    from runner.llm.llm import BaseLLM

    HERE = Path(__file__).parent

    class Model(BaseLLM):
        def call(self, messages, tools=None, **more):
            if (HERE / "broken").exists():
                raise LookupError("no ink")
            return f"{messages[-1]['content']}: 42"

    sage = Agent(role="sage", goal="know", backstory="old", llm=Model("m"))
"""


def test_an_agent_is_asked_again_what_it_was_asked(write_crew, location):
    path = write_crew(AGENT)
    (path.parent / "broken").touch()
    agent = load_target(parse_target(str(path))).sage
    provider = SqliteProvider() if location.endswith(".db") else JsonProvider()
    agent.checkpoint = CheckpointConfig(location=location, provider=provider, on_events=["*"])
    with pytest.raises(LookupError):
        agent.kickoff("How much?")
    (path.parent / "broken").unlink()
    source = StoredSource(location)
    start = find(source, None)
    assert source.details(start).entities[0].kind == "agent"
    assert "How much?" in str(source.details(start).state["asked"])
    handler = CrewHandler(source, str(path))
    assert handler.execute(Command("resume", start)).endswith("How much?: 42")
    assert handler.execute(Command("fork", start, "mine")).endswith("How much?: 42")
    assert "mine" in [branch.name for branch in source.branches()]
