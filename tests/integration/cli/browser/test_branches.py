"""What the browser shows of a branch, where the cursor is on one."""

import asyncio
import threading


def test_a_branch_is_described_too(play, source):
    async def story(screen):
        await screen.press("home")
        assert "keeps   4 checkpoints" in screen.text
        await screen.press("down", "down", "down", "down")
        assert f"left    main at {source.kept[1].id}"[:44] in screen.text
        # enter folds it
        before = len([row for row in screen.rows if ":" in row[:40]])
        await screen.press("enter")
        assert len([row for row in screen.rows if ":" in row[:40]]) < before

    play(story, source)


def test_a_checkpoint_that_was_being_read_is_not_shown_over_a_branch(play, source):
    asked, answer, details = threading.Event(), threading.Event(), source.details

    def read(checkpoint):
        asked.set()
        assert answer.wait(30)
        return details(checkpoint)

    async def story(screen):
        await screen.press("home")
        source.details = read
        await screen.pilot.press("down")
        assert await asyncio.to_thread(asked.wait, 30)
        await screen.pilot.press("home")
        answer.set()
        await screen.settle()
        assert "keeps   4 checkpoints" in screen.text

    play(story, source)
