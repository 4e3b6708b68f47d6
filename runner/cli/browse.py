"""The browser's beginning and end: what it shows, who carries out what is chosen in it, and what that came to."""

from runner.cli.browser.app import Browser
from runner.cli.orders import hand_for
from runner.cli.stdio import print_line, say
from runner.client.checkpoints import locate as places
from runner.core.errors import Conflict, NotFound, UsageError


def open_browser(where: str | None, crew: str | None) -> int:
    """Browse until the person leaves; then carry out the order given, if it is for this process."""
    with places.opened(where or places.here()) as source:
        hand = hand_for(source, crew)
        browser = Browser(source, hand)
        while (order := browser.run()) is not None:
            say(f"{order.verb} from {order.checkpoint.id} ({order.checkpoint.branch}), in this process")
            try:
                print_line(hand.carry_out(order))
                break
            except (UsageError, NotFound, Conflict) as refusal:  # nothing was done: the screen is as it was
                drafts, browser = browser.drafts, Browser(source, hand, at=order.checkpoint, said=str(refusal))
                browser.drafts = drafts
    return 0
