"""The browser's beginning and end: what it shows, who carries out what is chosen in it, and what that came to."""

from runner.cli.browser.app import Browser
from runner.cli.stdio import say, tell
from runner.client.checkpoints import locate as places
from runner.client.checkpoints.commands import Hand, NoHand
from runner.client.checkpoints.fleet import RunHand, RunSource
from runner.client.checkpoints.local import CrewHand
from runner.client.checkpoints.model import Source
from runner.client.checkpoints.stored import StoredSource
from runner.core.errors import Conflict, NotFound, UsageError


def open_browser(where: str | None, crew: str | None) -> int:
    """Browse until the person leaves; then carry out the order given, if it is for this process."""
    with places.opened(where or places.here()) as source:
        hand = _hand(source, crew)
        browser = Browser(source, hand)
        while (order := browser.run()) is not None:
            say(f"{order.verb} from {order.checkpoint.id} ({order.checkpoint.branch}), in this process")
            try:
                tell(hand.carry_out(order))
                break
            except (UsageError, NotFound, Conflict) as refusal:  # nothing was done: the screen is as it was
                drafts, browser = browser.drafts, Browser(source, hand, at=order.checkpoint, said=str(refusal))
                browser.drafts = drafts
    return 0


def _hand(source: Source, crew: str | None) -> Hand:
    if isinstance(source, RunSource):
        if crew is not None:
            raise UsageError("--crew is for checkpoints in files: a run's code is stored with it")
        return RunHand(source.client, source.run_id)
    if crew is not None:
        assert isinstance(source, StoredSource)
        return CrewHand(source, crew)
    return NoHand(f"to resume or fork them, name their crew: runner checkpoint {source.where} --crew crew.py")
