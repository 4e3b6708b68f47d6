"""Carries out commands on stored checkpoints in this process, with the crew that the person named."""

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from runner.agents import Agent
from runner.bundles import loader
from runner.bundles.target import parse_target
from runner.client.checkpoints.commands import Command
from runner.client.checkpoints.model import Checkpoint
from runner.client.checkpoints.state import key_of, tasks_in
from runner.client.checkpoints.stored import StoredSource, readable_errors
from runner.core.errors import BadCheckpoint, BadCrew, BadInput, Conflict, RunnerError, TaskError, one_line
from runner.core.output import TaskOutput, edited, fitted, from_record
from runner.crews import kickoff
from runner.crews.crew import Crew
from runner.engine import adapters
from runner.flows import Flow
from runner.providers.base import check_branch
from runner.providers.config import CheckpointConfig


class CrewHandler:
    """A loaded crew file, whose code resumes with the data of a checkpoint."""

    refusal = ""
    leaves_screen = True

    def __init__(self, source: StoredSource, target: str) -> None:
        self.source = source
        self._target = parse_target(target)
        with self._in_use():
            module = loader.load_target(self._target)
            there = list(vars(module).values())
            # A crew file may have agents beside its crew; an agent that works alone has checkpoints too.
            kinds = (adapters.is_crew, *_KINDS)
            kind = next((kind for kind in kinds if any(map(kind, there))), adapters.is_crew)
            accepts = kind if self._target.attr is None else lambda thing: any(kind(thing) for kind in kinds)
            self.entity: Any = loader.find_crew(module, self._target.attr, accepts, adapters.chosen)[1]

    def check(self, command: Command) -> None:
        """Check that the name of a fork's branch is valid and free, and that its edits fit. Raises `RunnerError`."""
        if command.verb == "fork" and command.branch:
            with readable_errors(self.source.where):
                check_branch(command.branch)
            if command.branch in {branch.name for branch in self.source.branches()}:
                raise Conflict(f"branch {command.branch!r} already exists: choose another name")
        if command.edits and not isinstance(self.entity, Crew):
            raise BadInput(
                "only the outputs of a crew's tasks can be edited here: fork without edits, or run it on the fleet, "
                "where `runner fork RUN --edit METHOD=TEXT` edits what a flow's method returned"
            )
        stored = self.source.read(command.checkpoint)
        tasks = self.entity.by_key if isinstance(self.entity, Crew) else {}
        for entity in stored["entities"]:
            for number, task in enumerate(tasks_in(entity), 1):
                key = key_of(task, number)
                if key in command.edits and task.get("output"):
                    after = edited(key, from_record(task["output"], name=key), command.edits[key])
                    fitted(key, tasks[key].output_model() if key in tasks else None, after.json_dict)

    def execute(self, command: Command) -> str:
        """Resume from the checkpoint in this process, to the end. Returns the result as text."""
        with self._in_use():
            try:
                result = self._go_on(command)
            except RunnerError:
                raise
            except Exception as error:
                text = one_line(error)
                raise TaskError(
                    f"{type(error).__name__}{': ' if text else ''}{text}; what was completed is in {self.source.where}"
                ) from error
        return str(result)

    def _go_on(self, command: Command) -> Any:
        config = self._config(command.checkpoint)
        if isinstance(self.entity, Agent):
            return self._ask_again(self.entity, config, command)
        cls: Any = self.entity if inspect.isclass(self.entity) else type(self.entity)
        if command.verb == "resume":
            if inspect.isclass(self.entity):
                return cls.from_checkpoint(config).kickoff()
            return self.entity.kickoff(from_checkpoint=config)
        if issubclass(cls, Flow):
            forked = cls.fork(config, branch=command.branch or None)
        else:
            forked = kickoff.restore(cls, config, code=self.entity, fork=True, branch=command.branch or None)
            _change(forked, self.source.read(command.checkpoint), command)
        return forked.kickoff(inputs=dict(command.inputs)) if command.inputs else forked.kickoff()

    def _ask_again(self, agent: Agent, config: CheckpointConfig, command: Command) -> Any:
        """Ask the agent its earlier question again, so that it continues its conversation."""
        asked = next(
            (one["asked"] for one in self.source.read(command.checkpoint)["entities"] if one.get("asked")), None
        )
        if asked is None:
            raise BadCheckpoint(f"the checkpoint {command.checkpoint.id} holds no agent that was given a prompt")
        if command.verb == "resume":
            return agent.kickoff(asked, from_checkpoint=config)
        return kickoff.restore(type(agent), config, code=agent, fork=True, branch=command.branch or None).kickoff(asked)

    def _config(self, checkpoint: Checkpoint) -> CheckpointConfig:
        """Return the crew's own settings, if any; its checkpoints are written to the location of the others."""
        own = getattr(self.entity, "checkpoint", None)
        config = own if isinstance(own, CheckpointConfig) else CheckpointConfig()
        place = {"location": self.source.location, "provider": self.source.provider}
        return config.model_copy(update={**place, "restore_from": checkpoint.location})

    def _in_use(self) -> contextlib.AbstractContextManager[None]:
        return loader.using(loader.key_of(self._target.include))


_KINDS: tuple[Callable[[object], bool], ...] = (
    lambda thing: isinstance(thing, Flow),
    lambda thing: isinstance(thing, type) and issubclass(thing, Flow) and thing is not Flow,
    lambda thing: isinstance(thing, Agent),
)
"""Whether something is a flow, a class of flows, or an agent, the likeliest to be meant first."""


def _change(crew: Any, stored: Mapping[str, Any], command: Command) -> None:
    """Apply the edits to a restored crew's outputs, and remove outputs that were made with other inputs."""
    by_key = dict(zip(getattr(crew, "task_keys", ()), getattr(crew, "all_tasks", ()), strict=True))
    unknown = sorted(command.edits.keys() - by_key.keys())
    if unknown:
        raise BadCrew(f"the crew file has no task {unknown[0]!r}: its output cannot be edited")
    for key in made_with(stored, command.inputs) - command.edits.keys():
        if key in by_key:
            by_key[key].output = None
    for key, text in command.edits.items():
        before = by_key[key].output
        by_key[key].output = edited(key, before or TaskOutput(name=key), text)


def made_with(stored: Mapping[str, Any], inputs: Mapping[str, Any]) -> set[str]:
    """Return the tasks of a stored state that used one of these inputs in their texts, or may have in their code."""
    if not inputs:
        return set()
    named = re.compile("|".join(rf"\{{{re.escape(name)}\}}" for name in inputs))
    found = set()
    for entity in stored["entities"]:
        for number, task in enumerate(tasks_in(entity), 1):
            texts = " ".join(str(task.get(name) or "") for name in _TEXTS)
            if task.get("code") or named.search(texts):
                found.add(key_of(task, number))
    return found


_TEXTS = (
    *("description", "expected_output", "output_file"),
    *("checkpoint_original_description", "checkpoint_original_expected_output"),
)
