"""The command line: one command for each verb. User errors are reported in one line."""

import gc
import sys
from importlib import import_module
from importlib.metadata import entry_points

import click
from click.exceptions import NoArgsIsHelpError

from runner.core.errors import Exit, RunnerError

#: Where each verb is, and what it does: a command imports what it needs itself, and ``--help`` imports none.
VERBS = {
    "answer": ("control", "Answer a run's question and continue the run."),
    "cancel": ("control", "Cancel a run."),
    "checkpoint": ("checkpoint", "Browse checkpoints; resume or fork from one."),
    "diff": ("branches", "Show the differences between two branches."),
    "doctor": ("doctor", "Check the store, the workers and this machine."),
    "events": ("inspection", "Print the events of a run."),
    "files": ("files", "List or export the files that a run's tasks wrote."),
    "flower": ("fleet", "Serve Flower: jobs and workers, live in a browser."),
    "fork": ("branches", "Start a new branch from a checkpoint of a run."),
    "offline": ("offline", "Serve the offline model to any OpenAI client."),
    "resume": ("control", "Resume a run that failed or was cancelled."),
    "runs": ("inspection", "List runs, newest first."),
    "show": ("inspection", "Show a run: its status, tasks and ledger."),
    "submit": ("submit", "Run an agent or crew on the fleet and wait for its result."),
    "supervisor": ("fleet", "Reschedule the tasks of dead workers."),
    "up": ("fleet", "Start server, worker, supervisor and Flower."),
    "wait": ("inspection", "Wait for a run and print its result."),
    "worker": ("fleet", "Start a worker: a pool of processes or threads."),
}

PLUGINS = "crew_runner.commands"
"""The entry points that add a verb, by its name: each is a `click.Command`. None takes the place of one of ours."""


class Verbs(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all verbs."""
        return sorted({*VERBS, *entry_points(group=PLUGINS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own names
        """Import and return one verb."""
        if cmd_name not in VERBS:
            return next((one.load() for one in entry_points(group=PLUGINS, name=cmd_name)), None)
        module, about = VERBS[cmd_name]
        gc.disable()  # all of it stays: a sixth of the time to import it went into looking for cycles
        try:
            command: click.Command = getattr(import_module(f"runner.cli.{module}"), cmd_name)
        finally:
            gc.enable()
        command.short_help = about
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs and what each does, in a table."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._about(ctx, name)) for name in names])

    def _about(self, ctx: click.Context, name: str) -> str:
        if name in VERBS:
            return VERBS[name][1]
        command = self.get_command(ctx, name)
        return command.get_short_help_str() if command is not None else ""


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="crew-runner", prog_name="runner")
def cli() -> None:
    """Run agents on a fleet of workers, so that nothing that was paid for is ever lost."""


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
    # redis-py takes a while to import
    from runner.providers.redis.outages import (
        REFUSED,
        REFUSES,
        TRANSIENT_ERRORS,
        brief,
        format_store_error,
        not_now,
        remedy,
    )

    if isinstance(refusal := not_now(error) or error, REFUSES):
        _fail(f"Redis is unavailable: {format_store_error(refusal)}. {remedy(refusal)}", Exit.UNREACHABLE)
    if isinstance(error, REFUSED):
        _fail(f"Redis refused: {error}; `runner doctor` shows its state", Exit.UNREACHABLE)
    if isinstance(error, TRANSIENT_ERRORS):
        _fail(f"the connection to Redis was lost: {brief(error)}; `runner doctor` shows its state", Exit.UNREACHABLE)


def _usage(error: click.ClickException) -> str:
    """click's own message, as one line that says where help is."""
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "runner"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _fail(message: str, code: int) -> None:
    from runner.cli.stdio import say  # rich takes a while to import
    from runner.core.redaction import redact

    say(f"error: {redact(' '.join(message.splitlines()))}")  # it may repeat what was typed: a URL with its password
    sys.exit(int(code))
