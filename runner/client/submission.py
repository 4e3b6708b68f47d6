"""Prepares a crew to run: loaded, planned and packed, with all that is stored for a run."""

import hashlib
import io
import json
import os
import socket
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from runner.bundles import bundle, script, signing
from runner.bundles.bundle import Bundle
from runner.bundles.program import CALL
from runner.bundles.project import CREW_FILE, MAIN_FILE
from runner.bundles.script import example_call
from runner.bundles.target import Target, parse_target
from runner.client.reading.crew import Request, plan_of
from runner.client.reading.process import Reader
from runner.core import settings
from runner.core.errors import BadCrew, BadInput, UsageError
from runner.core.field_errors import format_field_errors
from runner.core.inputs import refuse_missing, refuse_unknown, stored, typed
from runner.core.plan import Plan
from runner.core.settings import KEEP, setting
from runner.engine import adapters
from runner.modelserver import stubs
from runner.providers.config import CheckpointConfig
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.keys import queue_of

if TYPE_CHECKING:
    from runner.bundles.environment import Environment


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crew that was read, planned and packed. Nothing is stored, and its code is not loaded in this process."""

    target: Target
    attr: str
    plan: Plan
    packed: Bundle
    code: str
    checkpoints: CheckpointConfig | None
    origin: str
    """The machine and the file that it was read from, with the object there."""
    output_files: dict[str, str]
    shapes: str
    adapter: str
    """The name of the one that accepts it."""
    word: str
    """What people call it: a crew, or an agent."""
    inputs: dict[str, Any]
    """The inputs that its own file kicks it off with: they need not be given."""
    unfit: dict[str, str]
    """Those of its own file that are not JSON, and why not: others must be given."""
    kinds: dict[str, str]
    """What inputs are in JSON that are no text."""
    names: list[str] | None
    """Those of all inputs that it takes; None where it may take others, too."""
    triggers: dict[str, str]
    """What the store calls events that are to trigger checkpoints, where it calls them otherwise."""
    environment: str
    """The digest of the environment that it asks for, and the crew file in its bundle; "" for none."""
    reader: Reader
    """The process that read it; gone unless its plan grows."""
    calls: int = 0
    """How many calls its file made while it was read, beside those that were known. The answers go with its code."""
    calls_unrecorded: int = 0
    """How many it made past the journal."""
    calls_kept: int = 0
    """How many of these answers do: as many as its bundle has room for."""

    def names_of_code(self) -> dict[str, str]:
        """Return the fields that say what is imported of its code, and by which adapter; signed if there is a key."""
        found = {"module": self.packed.module, "attr": self.attr, "adapter": self.adapter}
        made = signing.sign(self.packed.sha256, *found.values())
        return {**found, "signature": made} if made else found

    def beginning(self, inputs: Mapping[str, Any]) -> str:
        """Return the initial state of a run of a dynamic plan as it is stored; "" for another plan."""
        return json.dumps(self.reader.initial_state(inputs), ensure_ascii=False) if self.plan.grows else ""

    def refuse_missing(self, inputs: Mapping[str, Any]) -> None:
        """Raise `BadInput` if a required input is missing."""
        if not self.plan.inputs <= inputs.keys():
            known = {*self.inputs, *(self.names or ())}
            refuse_missing(self.plan.inputs, inputs, self._what, self._instead(), known, self.kinds)

    def given(self, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the inputs with their declared types, plus those that the file itself gives. Raises `BadInput`."""
        for name, why in self.unfit.items():
            if name not in (inputs or {}):
                raise BadInput(why)
        agent = f": name the agent that is to have it, as in {self.target.file.name}:agent" if self.is_script else ""
        refuse_unknown(self.names, inputs or {}, self._what, agent)
        return {**self.inputs, **typed(inputs or {}, self.kinds)}

    def _instead(self) -> str:
        """Suggest a target in the file that needs no inputs from the caller."""
        file = self.target.file
        if self._what == "agent":
            example = example_call(file)
            return f"; or name the function that runs it{example}" if example else ""
        if self._what == "crew" and self.attr != script.NAME and script.kicks_off(file):
            return f"; or name what the file does as a script, which has them: {file.name}:{script.NAME}"
        if file.name == CREW_FILE and (main := file.with_name(MAIN_FILE)).is_file():
            return f"; or name the function that has them, as in {os.path.relpath(main)}:run"
        return ""

    @property
    def _what(self) -> str:
        if not self.attr.endswith(CALL):
            return self.word
        return "script" if self.attr == f"{script.NAME}{CALL}" else "function"

    @property
    def is_script(self) -> bool:
        """Whether the target is a whole file that runs agents, and no object in it was named."""
        return self._what == "script" and self.names is not None and self.target.attr is None


def prepare(
    target_text: str,
    *,
    limit: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    alone: bool = False,
    meanwhile: AbstractContextManager[None] | None = None,
    own: Iterable[os.stat_result] = (),
    calls: Mapping[str, str] | None = None,
    known: Callable[[], Mapping[str, str]] | None = None,
    paying: bool = True,
) -> Prepared:
    """Read, plan and pack a crew. Nothing is stored.

    The file is read in a separate process in the project's folder, so any number of threads may prepare crews, and
    their code has no effect here.

    Args:
        inputs: those of the run, for a class that needs arguments.
        alone: this process has one thread and nothing that the crew must not see, so it can be forked, which is faster.
        meanwhile: a context that is open while the file is read.
        own: files that are not packed, by their status: those that the command reads and writes.
        calls: what models answered when it was read before: they are not asked that again.
        known: gets more of these; it is called only if the file asks a model while it is read.
        paying: whether the file may ask models while it is read. Their answers are packed, and serve wherever the file
            is imported for a run.

    Raises `UsageError` with what is wrong; `UnpaidReading` for a file that asks one and may not.
    """
    target = parse_target(target_text)
    request = Request.of(target, inputs or {}, calls=calls, paying=paying)
    limit = limit or settings.bundle_limit()
    reader = Reader(request, alone=alone, known=known)
    try:
        with meanwhile or nullcontext():
            try:
                packed = bundle.pack(target, limit=limit, own=own)
            except UsageError:
                reader.found()  # what is wrong with the crew file comes first
                raise
            wanted = _environment(target, packed)
            try:
                found = reader.found()
            except BadCrew as error:
                if wanted is None or not _may_differ(error, wanted) or (python := _elsewhere(wanted)) is None:
                    raise
                reader.close()
                reader = Reader(replace(request, calls=reader.calls), python=python, known=known)
                found = reader.found()
            calls_kept = 0
            if reader.calls:
                packed, calls_kept = bundle.with_calls(packed, reader.calls, limit=limit)
                wanted = _environment(target, packed)  # it may be that of this bundle alone
    except BaseException:
        reader.close()
        raise
    plan, config = plan_of(found), found["checkpoints"]
    if not plan.grows:
        reader.close()
    return Prepared(
        target=target,
        plan=plan,
        packed=packed,
        code=code_digest(packed),
        checkpoints=config and CheckpointConfig.model_construct(**config),
        origin=f"{socket.gethostname()}:{target.file.resolve()}" + (f"::{found['attr']}" if found["attr"] else ""),
        **{name: value for name, value in found.items() if name not in ("plan", "checkpoints")},
        environment=f"{wanted.digest} {target.file.relative_to(target.root).as_posix()}" if wanted is not None else "",
        reader=reader,
        calls=reader.paid,
        calls_unrecorded=reader.unrecorded,
        calls_kept=max(0, calls_kept - (len(reader.calls) - reader.paid)),
    )


def _environment(target: Target, packed: Bundle) -> "Environment | None":
    """Return the environment that the crew asks for, if it is one that is built. Raises `BadCrew`."""
    if not packed.asks or not settings.builds_environments():
        return None
    from runner.bundles.environment import asked_for  # most crews ask for none

    return asked_for(target.file, target.include, packed.sha256)


def _may_differ(error: BadCrew, wanted: "Environment") -> bool:
    """Whether a file that lacks a module, or another Python, may be readable in the environment."""
    from runner.bundles.environment import suits

    return "no module named" in str(error) or not suits(wanted)


def _elsewhere(wanted: "Environment") -> Path | None:
    """Build the file's environment, and return its interpreter; None if it is this one, or there is no uv.

    Raises `EnvironmentFailed`.
    """
    from runner.bundles.environment import why_not
    from runner.bundles.uv_build import built, uv

    return built(wanted, settings.cache_dir()) if uv() and why_not(wanted) else None


def code_digest(packed: Bundle) -> str:
    """Return a hash of the code only: data files beside it may change, such as a run's own logs."""
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(packed.data)), mode="r:") as tar:
        for member in tar:
            if member.isfile() and member.name.endswith((".py", ".yaml", ".yml", ".toml", ".jsonc", *bundle.ASKING)):
                content = tar.extractfile(member)
                digest.update(f"{member.name}\0".encode() + (content.read() if content else b"") + b"\0")
    return digest.hexdigest()


def run_fields(
    prepared: Prepared,
    inputs: dict[str, Any] | None,
    queue: str,
    *,
    max_checkpoints: int | None = None,
    checkpoint_on: list[str] | None = None,
    keep: float = KEEP,
    models: str = "",
) -> dict[str, str]:
    """Return the fields of a run as they are stored; the options are those of `Client.submit`. Raises `UsageError`."""
    if models and (why := adapters.own_models(prepared.adapter)):
        raise UsageError(f"--demo and --offline are for agents of runner itself: {why}")
    if not 1 <= keep <= settings.LONGEST:
        raise UsageError(
            f"a finished run is kept for 1 to {settings.LONGEST:.0f} seconds (100 years), not for {keep:g}"
        )
    config = prepared.checkpoints
    if checkpoint_on or max_checkpoints is not None:
        base = config or CheckpointConfig()
        try:
            config = CheckpointConfig(
                on_events=checkpoint_on or base.on_events,  # type: ignore[arg-type]  # pydantic checks it, and its error is the user's
                max_checkpoints=max_checkpoints if max_checkpoints is not None else base.max_checkpoints,
            )
        except ValidationError as error:
            raise UsageError(format_field_errors(error).partition(": ")[2]) from None
    triggers = [prepared.triggers.get(event, event) for event in config.on_events] if config else []
    return {
        "crew": prepared.plan.crew,
        "bundle": prepared.packed.sha256,
        "code": prepared.code,
        **prepared.names_of_code(),
        "target": prepared.origin,
        "plan": prepared.plan.digest,
        "result_task": prepared.plan.result,
        "output_files": json.dumps(prepared.output_files),
        **({"shapes": prepared.shapes} if prepared.shapes else {}),
        **({"inputs": stored(inputs)} if inputs is not None else {}),
        **({"environment": prepared.environment} if prepared.environment else {}),
        "queue": queue_of(queue),
        "keep": str(int(keep * 1000)),
        **({"standin": stubs.named(models) or ""} if models else {}),
        "checkpoint_on": f",{','.join(triggers)}," if config else "",
        "max_checkpoints": str(config.max_checkpoints or 0) if config else "0",
        "envelope": "" if setting("RUNNER_BROKER_URL") else DIRECT,
        **({"beginning": prepared.beginning(inputs)} if inputs is not None and prepared.plan.grows else {}),
    }
