"""The command line. Each verb of the contract is one command; what a person can put right is said in one line."""

import gc
import sys
from importlib import import_module

import click
from click.exceptions import NoArgsIsHelpError

from runner.core.errors import Exit, RunnerError

#: Where each verb is: a command imports what it needs itself, and not what the others do.
VERBS = {
    "submit": "submit", "worker": "fleet", "supervisor": "fleet", "flower": "fleet", "up": "fleet",
    "runs": "look", "show": "look", "wait": "look", "events": "look", "doctor": "doctor", "checkpoint": "checkpoint",
    "resume": "steer", "cancel": "steer", "answer": "steer", "fork": "branches", "diff": "branches",
    "offline": "offline", "files": "files",
}  # fmt: skip


class Verbs(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All of them."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """One of them."""
        if cmd_name not in VERBS:
            return None
        gc.disable()  # all of it stays: a sixth of the time to import it went into looking for cycles
        try:
            command: click.Command = getattr(import_module(f"runner.cli.{VERBS[cmd_name]}"), cmd_name)
        finally:
            gc.enable()
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="crew-runner", prog_name="runner")
def cli() -> None:
    """Run a crew of agents on a fleet of workers, so that nothing that was paid for is ever lost."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``runner``."""
    try:
        code = cli.main(args=arguments, prog_name="runner", standalone_mode=False)
    except RunnerError as error:
        _fail(str(error), error.exit_code)
    except NoArgsIsHelpError as error:
        error.show(sys.stderr)
        sys.exit(Exit.USAGE)
    except click.ClickException as error:
        _fail(_usage(error), Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        _fail_as_redis(error)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _fail_as_redis(error: Exception) -> None:
    """Say it in a line if it is Redis that failed."""
    from runner.providers.redis.patience import NOT_NOW, REFUSED, in_words, not_now  # redis-py takes a while to import

    if (found := not_now(error)) is not None:
        _fail(f"Redis refused: {found}: {in_words(found)}", Exit.UNREACHABLE)
    if isinstance(error, REFUSED):
        _fail(f"Redis refused: {error}; `runner doctor` says what is there", Exit.UNREACHABLE)
    if isinstance(error, NOT_NOW):
        _fail(f"Redis went away: {error}; `runner doctor` says what is there", Exit.UNREACHABLE)


def _usage(error: click.ClickException) -> str:
    """click's own message, as one line that says where help is."""
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "runner"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _fail(message: str, code: int) -> None:
    from runner.cli.stdio import say  # rich takes a while to import

    say(f"error: {' '.join(message.splitlines())}")
    sys.exit(int(code))
