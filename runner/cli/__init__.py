"""The command line. Each verb of the contract is one command; what a person can put right is said in one line."""

import sys

import click
from click.exceptions import NoArgsIsHelpError

from runner.cli import branches, checkpoint, fleet, look, offline, steer, submit
from runner.errors import Exit, RunnerError
from runner.providers.redis.connection import NOT_NOW, REFUSED


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="crew-runner", prog_name="runner")
def cli() -> None:
    """Run a crew of agents on a fleet of workers, so that nothing that was paid for is ever lost."""


for command in (
    submit.submit, fleet.worker, fleet.supervisor, fleet.flower, fleet.up,
    look.runs, look.show, look.wait, look.events, checkpoint.checkpoint, look.doctor,
    steer.resume, branches.fork, branches.diff, steer.cancel, steer.answer, offline.offline,
):  # fmt: skip
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``runner``."""
    try:
        code = cli.main(args=arguments, prog_name="runner", standalone_mode=False)
    except RunnerError as error:
        _fail(str(error), error.exit_code)
    except NOT_NOW as error:
        _fail(f"Redis went away: {error}; `runner doctor` says what is there", Exit.UNREACHABLE)
    except REFUSED as error:
        _fail(f"Redis refused: {error}; `runner doctor` says what is there", Exit.UNREACHABLE)
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
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: click.ClickException) -> str:
    """click's own message, as one line that says where help is."""
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "runner"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _fail(message: str, code: int) -> None:
    click.echo(f"error: {' '.join(message.splitlines())}", err=True)
    sys.exit(int(code))
