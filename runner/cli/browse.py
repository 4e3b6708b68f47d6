"""Starts the terminal browser, and carries out the command chosen in it."""

from runner.cli.browser.app import Browser
from runner.cli.checkpoint_commands import handler_for
from runner.cli.stdio import print_line, say
from runner.client.checkpoints import locate
from runner.core.errors import Conflict, NotFound, UsageError


def open_browser(where: str | None, crew: str | None) -> int:
    """Browse until the person leaves; then carry out the command given, if it is for this process."""
    with locate.opened(where or locate.here()) as source:
        handler = handler_for(source, crew)
        browser = Browser(source, handler)
        while (command := browser.run()) is not None:
            say(f"{command.verb} from {command.checkpoint.id} ({command.checkpoint.branch}), in this process")
            try:
                print_line(handler.execute(command))
                break
            except (UsageError, NotFound, Conflict) as refusal:  # nothing was done: the screen is as it was
                drafts, browser = browser.drafts, Browser(source, handler, at=command.checkpoint, said=str(refusal))
                browser.drafts = drafts
    return 0
