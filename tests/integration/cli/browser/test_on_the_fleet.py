"""The browser on a run: what is chosen there is done by the fleet's workers."""

import pytest

from runner.client.checkpoints.fleet import RunHandler, RunSource
from runner.client.checkpoints.model import find

CREW = """
    from runner import Crew, Task

    def collect(ctx):
        return ["owl", "hen"]

    def sort(ctx):
        return " ".join(sorted(ctx.outputs["collect"].json_dict))

    tasks = [
        Task(name="collect", run=collect),
        Task(name="title", run=lambda ctx: f"About {ctx.inputs['topic']}"),
        Task(name="sort", run=sort),
        Task(name="write", run=lambda ctx: f"{ctx.outputs['title'].raw}: {ctx.outputs['sort'].raw}"),
    ]
    tasks[1].context = []
    tasks[2].context = [tasks[0]]
    crew = Crew(name="barnyard", tasks=tasks)
"""


@pytest.fixture
def done(fleet, client, write_crew):
    """A run that is completed: its source and handler."""
    fleet.start("--concurrency", "1")
    handle = client.submit(str(write_crew(CREW)), {"topic": "birds"})
    assert handle.wait(60).result == "About birds: hen owl"
    return RunSource(client, handle.id), RunHandler(client, handle.id)


def test_an_edited_output_is_forked_and_done_again_beside_the_original(play, done, client):
    source, handler = done
    start = source.branches()[0].checkpoints[2]

    async def story(screen):
        assert screen.rows[0].startswith(f" run {source.run_id}   1 branch, 4 checkpoints")
        assert "✓ main  4  completed" in screen.text
        await screen.choose(start)
        assert "3 of 4 tasks done" in screen.text
        await screen.press("o", "enter", "ctrl+k")
        await screen.type('["owl", "goose"]')
        await screen.press("escape", "f")
        await screen.type("mine")
        await screen.press("enter")
        assert screen.status == f"fork: it continues on mine; runner wait {source.run_id} --branch mine"
        assert client.run(source.run_id, "mine").wait(60).result == "About birds: goose owl"
        # the new branch stands under the checkpoint that it left, with what it did, and nothing else, on it
        await screen.press("f5")
        at = next(i for i, row in enumerate(screen.rows) if f"sort {start.id[-8:]}" in row[:34])
        assert "✓ mine  2" in screen.rows[at + 1]

    play(story, source, handler)
    main, mine = source.branches()
    assert (mine.origin.branch, mine.origin.checkpoint) == ("main", start.id)
    assert [one.task for one in mine.checkpoints] == ["sort", "write"], "only what was made from the edited output"
    assert [one.task for one in main.checkpoints] == ["collect", "title", "sort", "write"]
    details = source.details(mine.checkpoints[-1])
    assert [(task.key, task.output) for task in details.tasks] == [
        ("collect", '["owl", "goose"]'), ("title", "About birds"), ("sort", "goose owl"),
        ("write", "About birds: goose owl"),
    ]  # fmt: skip


def test_another_input_is_forked_and_shown_on_its_branch_only(play, done, client):
    source, handler = done

    async def story(screen):
        await screen.press("i", "enter", "ctrl+k")
        await screen.type("hens")
        await screen.press("escape", "f")
        await screen.type("hens")
        await screen.press("enter")
        assert client.run(source.run_id, "hens").wait(60).result == "About hens: hen owl"

    play(story, source, handler)
    main, hens = source.branches()
    assert [one.task for one in hens.checkpoints] == ["title", "write"]
    assert source.details(hens.checkpoints[0]).inputs == {"topic": "hens"}
    assert source.details(main.checkpoints[-1]).inputs == {"topic": "birds"}


def test_resume_from_an_older_one_and_from_where_nothing_is_left(play, done, client):
    source, handler = done
    old = source.branches()[0].checkpoints[1]

    async def story(screen):
        await screen.press("r", "enter")
        assert screen.status == f"run {source.run_id} is completed there: nothing is left to do"
        await screen.choose(old)
        await screen.press("r", "enter")
        assert screen.status.startswith("resume: it continues")

    play(story, source, handler)
    branch = next(one.name for one in source.branches() if one.name != "main")
    assert branch.startswith(f"resume/{old.id}_")
    assert client.run(source.run_id, branch).wait(60).result == "About birds: hen owl"
    [_, resumed] = source.branches()
    assert (resumed.origin.branch, resumed.origin.checkpoint) == ("main", old.id)


def test_pruning_from_the_screen_is_exact(play, done):
    source, handler = done
    newest = find(source, None)

    async def story(screen):
        await screen.press("p", "backspace")
        await screen.press("1")
        await screen.press("enter")
        assert screen.status == "3 checkpoints of main removed"

    play(story, source, handler)
    assert [one.id for one in source.branches()[0].checkpoints] == [newest.id]
