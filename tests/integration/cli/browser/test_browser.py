"""The browser as a person uses it: by keys, looking at what is on the screen."""

import pytest

from runner.core.errors import NotFound, StoreUnreachable

SIZES = [(80, 24), (120, 40)]
KEYS = [
    *("r Resume", "f Fork", "d Diff", "m Mark", "i Input", "o Output"),
    *("p Prune", "F5 Refresh", "q Quit"),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_opens_on_the_newest_with_forks_under_what_they_left(play, source, size):
    async def story(screen):
        rows = [row.split("Checkpoint")[0].rstrip() for row in screen.rows]
        assert rows[0] == " ./.checkpoints  JSON files   3 branches, 7 checkpoints"
        tree = [row[: size[0] * 2 // 5].rstrip() for row in rows[1:11]]
        names = [line.lstrip(" │├└▼").split("  ")[0] for line in tree]
        assert names[0] == "main"
        assert [name.split()[-1] for name in names[1:4]] == ["00000004", "00000003", "00000002"]
        assert names[4] == "fork/…00000002_a1b2c3"
        assert names[7] == "again"
        depth = [line.index(name) for line, name in zip(tree, names, strict=True)]
        assert depth[0] < depth[3] < depth[4] < depth[6] < depth[7]
        # the newest is chosen, and its details are there
        assert screen.app.chosen is source.kept[-1]
        for fact in ("id       20260715T100323_000000cb", "parent   20260715T100142_00000066", "crew  barnyard"):
            assert fact in screen.text
        assert "3 of 4 tasks done" in screen.text
        assert "✓ write  reporter" in screen.text
        assert "· review  pending" in screen.text
        # and every key is named, whole, in the last row
        for key in KEYS:
            assert key in screen.rows[-1]

    assert play(story, source, size=size) is None


def test_inputs_and_outputs_are_edited_and_forked(play, source, fakes):
    handler, point = fakes.FakeHandler(), source.kept[2]

    async def story(screen):
        await screen.choose(point)
        # Given a text input, a number, and an output, each changed by hand
        await screen.press("i", "enter", "ctrl+k")
        await screen.type("old owls")
        assert "changed: input topic" in screen.status
        assert "esc first, then f forks" in screen.text
        await screen.press("escape", "i", "down", "enter", "end", "0")
        await screen.press("escape", "o", "down", "down", "enter", "down", "end")
        await screen.type(" The end.")
        await screen.press("escape")
        assert screen.draft(point).summary == "input topic, input count, output of write"
        assert "✎" in next(row for row in screen.rows if point.id[-8:] in row)
        assert all(key in screen.rows[-1] for key in [*KEYS, "x Drop"])
        # they are kept while looking elsewhere
        await screen.choose(source.kept[0])
        await screen.choose(point)
        await screen.press("o")
        assert "there were geese. The end." in screen.text
        # When it is forked
        await screen.press("escape")
        assert "esc first" not in screen.text
        await screen.press("f")
        assert f"From {point.id}" in screen.text
        assert "Changed: input topic, input count, output of write." in screen.text
        await screen.type("mine")
        await screen.press("enter")
        # Then exactly the changes go with it
        assert screen.status == "done: fork mine"
        assert not screen.draft(point)
        assert "✎" not in screen.text

    play(story, source, handler)
    [command] = handler.commands
    assert (command.verb, command.checkpoint, command.branch) == ("fork", point, "mine")
    assert command.inputs == {"topic": "old owls", "count": 30}
    assert command.edits == {"write": "Once upon a time\nthere were geese. The end."}


def test_a_change_taken_back_is_no_change_and_an_input_that_is_no_json_is_said(play, source, fakes):
    handler, point = fakes.FakeHandler(), source.kept[3]

    async def story(screen):
        await screen.choose(point)
        await screen.press("i", "enter", "x", "backspace")
        assert not screen.draft(point)
        await screen.press("escape", "i", "down", "enter", "end", "x", "escape", "f")
        assert screen.status.startswith("input count is not JSON: ")
        assert len(screen.app.screen_stack) == 1
        # x drops the changes, and is offered only while there are some
        assert "x Drop" in screen.rows[-1]
        await screen.press("x")
        assert "x Drop" not in screen.rows[-1]
        await screen.press("i")
        assert "3x" not in screen.text

    play(story, source, handler)
    assert handler.commands == []


def test_an_output_that_is_not_there_yet_cannot_be_edited(play, source):
    async def story(screen):
        await screen.choose(source.kept[0])
        await screen.press("o", "down", "enter", "x", "y")
        assert not screen.draft(source.kept[0])

    play(story, source)


def test_resume_asks_first_and_takes_no_changes(play, source, fakes):
    handler, point = fakes.FakeHandler(), source.kept[1]

    async def story(screen):
        await screen.choose(point)
        await screen.press("r")
        assert "It resumes from its state at that point." in screen.text
        await screen.press("escape")
        assert handler.commands == []
        await screen.press("i", "enter", "x", "escape", "r")
        assert screen.status == "resume takes no changes: f forks with them, x discards them"
        await screen.press("x", "r", "enter")
        assert screen.status == "done: resume"

    play(story, source, handler)
    assert [(command.verb, command.checkpoint) for command in handler.commands] == [("resume", point)]


def test_the_buttons_do_what_the_keys_do(play, source, fakes):
    handler = fakes.FakeHandler()

    async def story(screen):
        await screen.choose(source.kept[1])
        await screen.click("#resume")
        await screen.click("#yes")
        await screen.click("#fork")
        await screen.click("#yes")
        await screen.click("#diff-button")
        assert "@@ task sort: pending -> done @@" in screen.text

    play(story, source, handler)
    assert [(command.verb, command.branch) for command in handler.commands] == [("resume", ""), ("fork", "")]


def test_a_question_is_left_by_the_mouse_and_by_enter_on_its_button(play, source, fakes):
    handler = fakes.FakeHandler()

    async def story(screen):
        await screen.choose(source.kept[1])
        await screen.click("#fork")
        await screen.click("#no")
        await screen.press("f", "x", "tab", "enter")
        assert handler.commands == []
        await screen.press("f", "y", "tab", "tab", "enter")

    play(story, source, handler)
    assert [(command.verb, command.branch) for command in handler.commands] == [("fork", "y")]


def test_what_is_done_in_this_process_is_done_once_the_screen_is_left(play, source, fakes):
    handler = fakes.FakeHandler(leaves_screen=True)

    async def story(screen):
        await screen.choose(source.kept[1])
        await screen.press("f", "enter")

    command = play(story, source, handler)
    assert (command.verb, command.checkpoint) == ("fork", source.kept[1])
    assert handler.commands == []


@pytest.mark.parametrize("leaves_screen", [False, True])
def test_a_command_that_fails_is_said_and_changes_stay(play, source, fakes, leaves_screen):
    handler, point = (
        fakes.FakeHandler(fails="the code of crew.py has changed", leaves_screen=leaves_screen),
        source.kept[1],
    )

    async def story(screen):
        await screen.choose(point)
        await screen.press("i", "enter", "x", "escape", "f", "enter")
        assert screen.status == "the code of crew.py has changed"
        assert screen.draft(point)

    assert play(story, source, handler) is None


def test_without_the_crew_the_line_below_says_what_to_do(play, source, fakes):
    what = "to resume or fork them, name their crew: runner checkpoint ./.checkpoints --crew crew.py"
    handler = fakes.FakeHandler(refusal=what)

    async def story(screen):
        assert screen.status == what
        await screen.press("i", "r")
        assert len(screen.app.screen_stack) == 1
        await screen.click("#fork")
        assert screen.status == what
        assert len(screen.app.screen_stack) == 1

    play(story, source, handler)
    assert handler.commands == []


def test_two_marked_ones_are_compared(play, source):
    first, second = source.kept[0], source.kept[4]

    async def story(screen):
        await screen.choose(first)
        await screen.press("m")
        await screen.choose(second)
        await screen.press("m")
        rows = screen.text
        assert "A 18:40:01" in rows.replace("\u00a0", " ") or f"A {rows.split('A ')[1][:8]}" in rows
        await screen.press("d")
        assert f"--- {first.id} (main)" in screen.text
        assert f"+++ {second.id} ({second.branch})" in screen.text
        assert "@@ task sort: pending -> done @@" in screen.text
        assert "+hens" in screen.text
        # esc closes it; m takes a mark away again
        await screen.press("escape", "m")
        assert [one.id for one in screen.app.marked] == [first.id]
        # a third mark drops the first
        for number in (1, 2):
            await screen.choose(source.kept[number])
            await screen.press("m")
        assert screen.app.marked == [source.kept[1], source.kept[2]]

    play(story, source)


def test_without_marks_it_is_compared_with_its_parent(play, source):
    async def story(screen):
        await screen.choose(source.kept[4])
        await screen.press("d")
        assert f"--- {source.kept[1].id} (main)" in screen.text
        assert "no difference" in screen.text
        await screen.press("q")
        assert len(screen.app.screen_stack) == 1
        await screen.choose(source.kept[0])
        await screen.press("d")
        assert screen.status == "its parent was pruned: press m to mark another one to compare it with"

    play(story, source)


def test_pruning_asks_and_says_how_many_would_go(play, source):
    async def story(screen):
        await screen.choose(source.kept[1])
        await screen.press("p")
        assert "It holds 4 checkpoints" in screen.text
        assert "0 would be deleted" in screen.text
        await screen.press("backspace")
        assert "Enter a number, 0 or more." in screen.text
        await screen.press("enter")
        assert len(screen.app.screen_stack) == 2, "an empty number prunes nothing"
        await screen.press("2")
        assert "2 would be deleted" in screen.text
        await screen.press("escape")
        assert source.asked == []
        await screen.press("p", "backspace", "1", "enter")
        assert source.asked == [("prune", 1, "main")]
        assert screen.status == "3 checkpoints of main removed"
        assert "3 branches, 4 checkpoints" in screen.rows[0]
        assert screen.app.chosen in source.kept

    play(story, source)


def test_what_is_behind_a_question_is_seen_whoever_draws_it_first(play, source):
    """Where the test came before the application, it drew nothing there, for good, and waited for the line of keys."""

    async def story(screen):
        await screen.press("p")
        screen.app.screen.refresh()
        assert "3 branches, 7 checkpoints" in screen.rows[0]
        assert all(key in screen.rows[-1] for key in KEYS)

    play(story, source)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_empty_place(play, fakes, size):
    async def story(screen):
        assert "0 branches, 0 checkpoints" in screen.rows[0]
        assert "There are no checkpoints yet." in screen.text
        for key in ("r", "f", "d", "m", "p", "i", "o", "f5"):
            await screen.press(key)
            assert len(screen.app.screen_stack) == 1
        await screen.press("r")
        assert screen.status == "choose a checkpoint to resume from"

    play(story, fakes.FakeSource(), size=size)


def test_a_place_that_fills_and_empties(play, fakes):
    source = fakes.FakeSource()

    async def story(screen):
        source.kept = fakes.line([1, 2])
        await screen.press("f5")
        await screen.settle()
        assert screen.app.chosen == source.kept[1]
        assert "2 of 4 tasks done" in screen.text
        source.kept = []
        await screen.press("f5")
        assert "There are no checkpoints yet." in screen.text
        assert screen.app.chosen is None

    play(story, source)


def test_a_torn_one_is_marked_and_only_looked_at(play, fakes):
    source, handler = fakes.FakeSource(), fakes.FakeHandler()
    source.kept = [*fakes.line([1, 2]), fakes.made(3, complete=False)]

    async def story(screen):
        assert screen.app.chosen == source.kept[1], "it opens on the newest complete one"
        assert "torn 00000003" in screen.text
        await screen.choose(source.kept[2])
        assert "is torn: it ends in the middle of a line" in " ".join(screen.text.split())
        for key in ("r", "f"):
            await screen.press(key)
            assert screen.status.startswith(f"{source.kept[2].id} is torn: choose another one")
        await screen.press("m")
        await screen.choose(source.kept[0])
        await screen.press("d")
        assert "is torn" in screen.status
        assert len(screen.app.screen_stack) == 1

    play(story, source, handler)
    assert handler.commands == []


def test_a_thousand_checkpoints(play, fakes):
    source = fakes.FakeSource(fakes.line(range(1, 1001)))
    for i in range(1, 1000, 10):
        source.kept += fakes.line([i * 10_000], f"fork/{i}", source.kept[i].id)

    async def story(screen):
        assert "101 branches, 1100 checkpoints" in screen.rows[0]
        await screen.choose(source.kept[500])
        assert f"id       {source.kept[500].id}" in screen.text
        assert any(source.kept[500].id[-8:] in row[:36] for row in screen.rows), "the tree went there"
        await screen.press("home", "down")
        assert screen.app.chosen == source.kept[999]
        await screen.press("end")
        assert screen.app.chosen == source.kept[0]

    play(story, source)


def test_new_checkpoints_appear_by_themselves_while_a_run_goes_on(play, fakes, monkeypatch):
    monkeypatch.setattr("runner.cli.browser.app.LOOK_AGAIN", 0.05)
    source = fakes.FakeSource(fakes.line([1]), growing=True)

    async def story(screen):
        chosen = screen.app.chosen
        await screen.press("i")
        source.kept = fakes.line([1, 2, 3])
        for _ in range(100):
            await screen.pilot.pause(0.02)
            if "3 checkpoints" in screen.rows[0]:
                break
        await screen.settle()
        assert "00000003" in screen.text
        assert screen.app.chosen == chosen, "the cursor stays where the person put it"

    play(story, source)


def test_a_place_that_cannot_be_read_is_said_and_can_be_looked_at_again(play, source, monkeypatch):
    async def story(screen):
        def away():
            raise StoreUnreachable("Redis went away")

        with monkeypatch.context() as patched:
            patched.setattr(source, "branches", away)
            await screen.press("f5")
            assert screen.status == "Redis went away"
            patched.setattr(source, "details", lambda one: (_ for _ in ()).throw(NotFound("pruned meanwhile")))
            await screen.choose(source.kept[0])
            assert "pruned meanwhile" in screen.text
        await screen.press("f5", "home", "down")
        assert screen.status == ""
        assert "4 of 4 tasks done" in screen.text

    play(story, source)


def test_text_from_a_checkpoint_is_no_markup(play, fakes):
    source = fakes.FakeSource(fakes.line([1]), inputs={"[bold]topic": "[/]", "b": "[red]x[/red]"})
    source.title = "./[a]"

    async def story(screen):
        assert "./[a]" in screen.rows[0]
        await screen.press("i")
        assert "[bold]topic" in screen.text
        await screen.press("down")
        assert "[red]x[/red]" in screen.text

    play(story, source)


def test_leaving_with_changes_says_so_once(play, source):
    async def story(screen):
        await screen.press("i", "enter", "x", "escape", "q")
        assert screen.app._exit is False
        assert screen.status == "there are changes that were not forked: press q again to discard them"
        await screen.press("q")

    assert play(story, source) is None


def test_where_a_place_does_not_tell_the_tree_says_how_far_each_is(play, fakes, monkeypatch):
    monkeypatch.setattr("runner.cli.browser.app.UNREAD", 2500)
    source = fakes.FakeSource([fakes.made(n, task="", trigger="") for n in (1, 2, 3)])

    async def story(screen):
        tree = [row[:32] for row in screen.rows]
        assert "3/4 00000003" in tree[2]
        assert "2/4 00000002" in tree[3]
        assert "/" not in tree[4], "what is too much to read is left"

    play(story, source)


def test_no_control_character_of_a_checkpoint_is_drawn(play, fakes):
    source = fakes.FakeSource(fakes.line([1], "evil\x1b]0;owned\x07\x9b31m"))

    async def story(screen):
        lines = [strip.text for strip in screen.app.screen._compositor.render_strips()]
        assert any("evil]0;owned31m" in line for line in lines), lines
        assert not [line for line in lines if not line.isprintable()]

    play(story, source)
