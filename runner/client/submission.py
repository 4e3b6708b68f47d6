"""A crew made ready to run: loaded, planned and packed, and what a run of it is stored as."""

import hashlib
import io
import json
import os
import socket
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from runner import adapters, settings, standin
from runner.adapters import Adapter
from runner.client import shapes
from runner.config import CheckpointConfig
from runner.errors import BadCrew, BadInput, MissingDependency, UsageError
from runner.plan import Plan
from runner.providers.redis.envelope import template
from runner.source import bundle, loader
from runner.source.bundle import Bundle
from runner.source.project import at_home
from runner.source.target import Target, parse_target
from runner.source.validation import in_words

KEEP = 7 * 24 * 3600.0  #: seconds that a finished run is kept

_imported: dict[str, str] = {}
"""The digest of the code of which this process has imported the modules, by the loader's key."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crew that was loaded, planned and packed: it can be run. Nothing is stored yet."""

    target: Target
    attr: str
    plan: Plan
    packed: Bundle
    code: str
    checkpoints: CheckpointConfig | None
    output_files: dict[str, str]
    shapes: str
    adapter: Adapter
    crew: Any
    inputs: dict[str, Any] = field(default_factory=dict)
    """What its own file kicks it off with: inputs that nobody need give."""

    def given(self, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """These inputs, and those of the file that are not among them."""
        return {**self.inputs, **(inputs or {})}


def run_id_for(id: str) -> str:
    """The run id that an idempotent submission gets."""
    if not id.strip():
        raise UsageError("--id must not be empty")
    return "r-" + hashlib.sha256(id.encode()).hexdigest()[:12]


def prepare(target_text: str, *, limit: int | None = None, inputs: Mapping[str, Any] | None = None) -> Prepared:
    """Load, plan and pack a crew, here. Raises `UsageError` with what is wrong; nothing is stored.

    ``inputs`` are those of the run, for a class that needs arguments.
    """
    target = parse_target(target_text)
    adapters.quiet()
    token = loader.given.set(loader.Given(inputs or {}))
    try:
        with at_home(target.root):
            return _prepared(target, limit)
    finally:
        loader.given.reset(token)


def _prepared(target: Target, limit: int | None) -> Prepared:
    module = _load(target)
    packed = bundle.pack(target, limit=limit or settings.bundle_limit())
    code, key = code_digest(packed), loader.key_of(target.include)
    if _imported.setdefault(key, code) != code:  # the module may be of an earlier look at the files
        if not loader.unload(key):
            raise BadCrew(f"the code of {target.file} changed while it is at work in this process: wait for that")
        _imported[key] = code
        module = _load(target)
    attr, crew = loader.find_crew(module, target.attr, adapters.is_crew, adapters.chosen, adapters.makers)
    adapter: Adapter = adapters.required(crew)
    plan = adapter.plan(crew, target.file.parent.name if target.file.stem in ("crew", "main") else target.file.stem)
    return Prepared(
        target,
        attr,
        plan,
        packed,
        code,
        adapter.checkpoints(crew),
        adapter.output_files(crew),
        shapes.dump(adapter.models(crew)),
        adapter,
        crew,
        adapters.inputs_of(crew),
    )


def _load(target: Target) -> ModuleType:
    try:
        return loader.load_target(target)
    except MissingDependency as error:
        raise BadCrew(f"{error}: install it where you submit from, too") from None


def code_digest(packed: Bundle) -> str:
    """Tells whether code changed: data beside it may, a run's own log files among them."""
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(packed.data)), mode="r:") as tar:
        for member in tar:
            if member.isfile() and member.name.endswith((".py", ".yaml", ".yml", ".toml", ".jsonc")):
                content = tar.extractfile(member)
                digest.update(f"{member.name}\0".encode() + (content.read() if content else b"") + b"\0")
    return digest.hexdigest()


def run_fields(
    prepared: Prepared,
    inputs: dict[str, Any],
    max_checkpoints: int | None,
    checkpoint_on: list[str] | None,
    queue: str,
    keep: float,
    models: str = "",
) -> dict[str, str]:
    """The fields of a run of this crew, as they are stored. Raises `UsageError`."""
    if models and getattr(prepared.adapter, "disposable", False):
        raise UsageError(
            "--demo and --offline are for agents of runner itself: CrewAI asks the model that its own settings name"
        )
    if not 1 <= keep <= settings.LONGEST:
        raise UsageError(
            f"a finished run is kept for 1 to {settings.LONGEST:.0f} seconds (100 years), not for {keep:g}"
        )
    try:
        inputs_json = json.dumps(inputs, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the inputs are not JSON: {error}") from None
    config = prepared.checkpoints
    if checkpoint_on or max_checkpoints is not None:
        base = config or CheckpointConfig()
        try:
            config = CheckpointConfig(
                on_events=checkpoint_on or base.on_events,  # type: ignore[arg-type]
                max_checkpoints=max_checkpoints if max_checkpoints is not None else base.max_checkpoints,
            )
        except ValidationError as error:
            raise UsageError(in_words(error).partition(": ")[2]) from None
    growing = adapters.growing(prepared.adapter)
    triggers = [growing.trigger(event) if growing else event for event in config.on_events] if config else []
    target = prepared.target
    return {
        "crew": prepared.plan.crew,
        "adapter": prepared.adapter.name,
        "bundle": prepared.packed.sha256,
        "code": prepared.code,
        "module": prepared.packed.module,
        "attr": prepared.attr,
        "target": f"{socket.gethostname()}:{target.file.resolve()}" + (f"::{prepared.attr}" if prepared.attr else ""),
        "plan": prepared.plan.digest,
        "result_task": prepared.plan.result,
        "output_files": json.dumps(prepared.output_files),
        **({"shapes": prepared.shapes} if prepared.shapes else {}),
        "inputs": inputs_json,
        "queue": queue,
        "keep": str(int(keep * 1000)),
        **({"standin": standin.named(models) or ""} if models else {}),
        "checkpoint_on": f",{','.join(triggers)}," if config else "",
        "max_checkpoints": str(config.max_checkpoints or 0) if config else "0",
        "envelope": "" if os.environ.get("RUNNER_BROKER_URL") else template(queue),
        **_beginning(prepared, inputs),
    }


def _beginning(prepared: Prepared, inputs: dict[str, Any]) -> dict[str, str]:
    """What the tasks of a plan that grows begin with."""
    growing = adapters.growing(prepared.adapter)
    if growing is None:
        return {}
    return {"beginning": json.dumps(growing.beginning(prepared.crew, inputs), ensure_ascii=False)}
