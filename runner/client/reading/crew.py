"""Reads a crew file and reports the result as JSON. The submitting process never runs the author's code."""

import os
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from runner.bundles import arguments, frameworks, isolation, loader, script
from runner.bundles.program import Program
from runner.bundles.reading import KickedOff
from runner.bundles.target import Target
from runner.client.reading import shapes
from runner.core import errors
from runner.core.errors import BadCrew, MissingDependency, RunnerError, UnpaidReading
from runner.core.inputs import as_json, given_as_json
from runner.core.plain_text import why_no_name
from runner.core.plan import Plan
from runner.engine import adapters
from runner.engine.adapter import Adapter
from runner.events.types import CheckpointEventType

if TYPE_CHECKING:
    from runner.journal.imports import ReadCalls

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What to read. ``inputs`` are those of the run, for a class that needs arguments.

    ``calls`` are those of models that were made when it was read before; others are made only if it is ``paying``.
    """

    target: Target
    inputs: Mapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)
    paying: bool = True

    @classmethod
    def of(
        cls, target: Target, inputs: Mapping[str, Any], *, calls: Mapping[str, str] | None = None, paying: bool = True
    ) -> "Request":
        """Return the request for a target. Raises `BadInput` for inputs that are not JSON."""
        return cls(target, given_as_json(inputs), dict(calls or {}), paying)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Request":
        """Return the request of another process, which sends its fields with paths as text."""
        fields: dict[str, Any] = {
            name: Path(value) if name in _PATHS else value for name, value in data["target"].items()
        }
        return cls(**{**data, "target": Target(**fields)})


_PATHS = ("file", "root", "include")  #: of a `Target`


class Reading:
    """A crew that was read in this process. ``calls`` has the calls of models that its code made meanwhile."""

    def __init__(self, request: Request, calls: "ReadCalls") -> None:
        from runner.llm.recording.loading import watch_imports  # who submits the file has no use for it

        self._calls, target = calls, request.target
        stopped: list[KickedOff] = []  # at its first call, as at a kickoff: a script does all that it does in its task

        def stop() -> KickedOff | None:
            stopped.extend([KickedOff(None)] if _is_script(target) else [])
            return stopped[-1] if stopped else None

        if request.paying:
            calls.stop_at_call(stop)
        adapters.quiet()
        watch_imports()
        arguments.given.set(arguments.Given(request.inputs))
        try:
            with calls:
                module = loader.load_target(target)
                self._attr, self._crew = loader.find_crew(
                    module, target.attr, adapters.is_crew, adapters.chosen, adapters.factories
                )
        except MissingDependency as error:
            raise BadCrew(f"{error}: install it where you submit from, too") from None
        except BadCrew:
            if not stopped:
                raise
            program = Program(script.NAME)  # it failed because a call was not made, as in a thread that it began
            self._attr, self._crew = program.attr, program
        self._adapter: Adapter = adapters.required(self._crew)
        self._name = target.file.parent.name if target.file.stem in ("crew", "main") else target.file.stem

    def found(self) -> Found:
        """Return everything that is stored with a run of the crew."""
        with self._calls:
            return self._found()

    def _found(self) -> Found:
        plan, crew, adapter = self._adapter.plan(self._crew, self._name), self._crew, self._adapter
        refuse_odd_names(plan)
        config, growing = adapter.checkpoints(crew), adapters.growing(adapter)
        inputs, unfit = as_json(adapters.inputs_of(crew))
        events = get_args(CheckpointEventType) if growing else ()
        return {
            "attr": self._attr,
            "plan": plan.to_json(),
            "checkpoints": config and {"on_events": config.on_events, "max_checkpoints": config.max_checkpoints},
            "output_files": adapter.output_files(crew),
            "shapes": shapes.dump(adapter.models(crew)),
            "adapter": adapter.name,
            "word": adapters.word_of(crew),
            "inputs": inputs,
            "unfit": unfit,
            "kinds": adapter.input_kinds(crew),
            "names": adapter.input_names(crew),
            "triggers": {event: growing.trigger(event) for event in events} if growing else {},
        }

    def initial_state(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the initial state of a plan that grows. Raises `BadInput`."""
        growing = adapters.growing(self._adapter)
        assert growing is not None
        return growing.initial_state(self._crew, inputs)


def _is_script(target: Target) -> bool:
    """Whether the file being read is run as a script: named so, or without an agent or further definitions."""
    if target.attr is not None:
        return target.attr == Program(script.NAME).attr
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not (frame.f_code.co_name == "<module>" and _is_of(target, frame.f_code.co_filename)):
        frame = frame.f_back
    module = sys.modules.get(frame.f_globals["__name__"]) if frame is not None else None
    if frame is None or module is None or not script.does_its_work_at(target.file, frame.f_lineno):
        return False
    made_with = frameworks.word_of(isolation.values_beside(module))
    return made_with == "agent" and not any(adapters.is_crew(one) for one in vars(module).values())


def _is_of(target: Target, file: str) -> bool:
    return Path(file).name == target.file.name and Path(file).resolve() == target.file.resolve()


def refuse_odd_names(plan: Plan) -> None:
    """Raise `BadCrew` with the first name in a plan that cannot be stored, or has no line in a list."""
    methods = plan.grows["methods"] if plan.grows else ()
    named = [("crew", plan.crew), *(("task", task.key) for task in plan.tasks)]
    for what, name in [*named, *(("method", method["name"]) for method in methods)]:
        if why := why_no_name(name):
            raise BadCrew(f"the {what} name {name[:40]!r} {why}")
    try:
        plan.to_json().encode()
    except UnicodeEncodeError as error:  # what its methods listen to, and return
        near = error.object[max(error.start - 20, 0) : error.end + 20]
        raise BadCrew(
            f"the crew file contains half of a surrogate pair, which is not valid UTF-8, in {near!r}"
        ) from None


def plan_of(found: Found) -> Plan:
    """Return the plan in the result of reading."""
    return Plan.from_json(found["plan"])


def refusal(error: BaseException, request: Request, calls: "ReadCalls") -> dict[str, str]:
    """Return an error in the form in which the submitting process raises it again, by `raise_again`."""
    root = request.target.root
    if calls.refused:
        error = UnpaidReading(f"{request.target.file.name} asks a model while it is imported: it was not asked")
    if not isinstance(error, RunnerError):
        if isinstance(error, Exception):
            traceback.print_exception(error)
        error = loader.explain(error, root)
    missing = error.__cause__.filename if isinstance(error.__cause__, FileNotFoundError) else None
    where = f" (relative paths are those of {root})" if missing and not Path(os.fsdecode(missing)).is_absolute() else ""
    many = len(calls.records)
    paid = f" (it had made {many} call{'s' * (many > 1)} by then, which may be paid)" if many else ""
    return {"kind": type(error).__name__, "said": f"{error}{where}{paid}"}


def raise_again(refusal: Mapping[str, str]) -> None:
    """Raise the error of another process again."""
    kind = getattr(errors, refusal["kind"], BadCrew)
    raise kind(refusal["said"])
