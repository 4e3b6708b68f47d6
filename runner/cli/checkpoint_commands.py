"""Carries out commands on a checkpoint that are given without the browser."""

from collections.abc import Mapping
from typing import Literal

from runner.cli import options
from runner.cli.stdio import only, say
from runner.client.checkpoints import locate
from runner.client.checkpoints.commands import Command, CommandHandler, ReadOnlyHandler
from runner.client.checkpoints.fleet import RunHandler, RunSource
from runner.client.checkpoints.local import CrewHandler
from runner.client.checkpoints.model import Source, find
from runner.client.checkpoints.stored import StoredSource
from runner.core.errors import UsageError
from runner.core.plain_text import json_text


def handler_for(source: Source, crew: str | None, verb: str = "") -> CommandHandler:
    """The run's own store, or the crew file that was named. Raises `UsageError` for a crew file beside a run."""
    if isinstance(source, RunSource):
        if crew is not None:
            raise UsageError("--crew is for checkpoints in files: a run's code is stored with it")
        return RunHandler(source.client, source.run_id)
    if crew is not None:
        assert isinstance(source, StoredSource)
        return CrewHandler(source, crew)
    command = " ".join(filter(None, ("runner checkpoint", verb, source.where)))
    return ReadOnlyHandler(f"to resume or fork them, name their crew: {command} --crew crew.py")


def execute(
    verb: Literal["resume", "fork"],
    where: str | None,
    beginning: str | None,
    crew: str | None,
    *,
    branch: str = "",
    pairs: tuple[str, ...] = (),
    edits: Mapping[str, str] | None = None,
    as_json: bool = False,
) -> int:
    """Resume or fork a checkpoint, by default the newest complete one, and print what that came to."""
    with only() as write, locate.opened(locate.here() if where is None else where) as source:
        checkpoint = find(source, beginning)
        inputs = options.read_inputs(pairs, None)
        if inputs:
            inputs = options.as_before(inputs, pairs, source.details(checkpoint).inputs)
        command = Command(verb, checkpoint, branch, inputs, edits or {})
        handler = handler_for(source, crew, verb)
        if handler.refusal:
            raise UsageError(handler.refusal)
        handler.check(command)
        say(f"{verb} from {checkpoint.id} ({checkpoint.branch})")
        result = handler.execute(command)
        write((json_text({"verb": verb, "checkpoint": checkpoint.id, "result": result}) if as_json else result) + "\n")
    return 0
