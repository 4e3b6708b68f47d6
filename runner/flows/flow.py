"""``Flow``: the class that authors subclass."""

import contextvars
import os
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from runner.bundles.reading import stop_if_read
from runner.bundles.target import root_of
from runner.bundles.task_files import TaskFiles, current
from runner.core import live_objects
from runner.core.context_value import ContextValue
from runner.core.runtime import engine_of
from runner.events import FlowCreatedEvent, event_bus, kickoff
from runner.flows import execution, feedback
from runner.flows import state as states
from runner.flows.conditions import and_, or_
from runner.flows.decorators import human_feedback, listen, router, start
from runner.flows.definition import FlowDefinition, define
from runner.flows.feedback import choose
from runner.flows.flow_log import FlowLog
from runner.flows.input_provider import InputResponse, flow_config
from runner.flows.machine import MAX_METHOD_CALLS
from runner.flows.memory_methods import MemoryMethods
from runner.flows.persistence.decorators import persistence_of
from runner.flows.schema import INITIAL_STATE_CLASS_MARKER as _INITIAL_STATE_CLASS_MARKER
from runner.flows.state import FlowState
from runner.flows.waiting import wait_for
from runner.providers.config import CheckpointConfig
from runner.snapshots import apply_checkpoint, restore
from runner.streaming import outermost

if typing.TYPE_CHECKING:
    from runner.streaming import AsyncStreamSession, StreamSession

# Code imports them all from this module.
__all__ = [
    "_INITIAL_STATE_CLASS_MARKER",
    "Flow",
    "FlowState",
    "and_",
    "human_feedback",
    "listen",
    "or_",
    "router",
    "start",
]

S = TypeVar("S", bound=dict[str, Any] | BaseModel)

_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("runner_flow_quiet", default=False)


class _Workdir:
    """An attribute that a flow's own code may set to something else."""

    def __get__(self, flow: Any, owner: type) -> Any:
        return self if flow is None else flow._task_files().workdir


class Flow(FlowLog, MemoryMethods, Generic[S]):
    """Methods that trigger each other, and a state they share.

    ``kickoff`` runs the flow in this process; ``runner submit`` runs the same flow on the fleet. Each method works on
    its own copy of ``self.state``, and what it changed is merged when it is done (`runner.flows.state`). Other
    attributes of ``self`` are a matter of this process: they are in no checkpoint, and on the fleet each method begins
    without them.
    """

    entity_type: ClassVar[str] = "flow"
    name: str | None = None
    initial_state: Any = None
    checkpoint: CheckpointConfig | bool | None = None
    persistence: Any = None
    input_provider: Any = None
    max_method_calls: int = MAX_METHOD_CALLS
    suppress_flow_events: bool = False
    stream: bool = False

    _definition: ClassVar[FlowDefinition | None] = None

    stored: Mapping[str, Any] = {}
    """What a checkpoint says of it, where this is a flow without its code."""

    _restored: Any = None
    _state: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._definition = None
        live_objects.remember(cls)

    def __new__(cls, *_: Any, **__: Any) -> "Flow[S]":
        """Set up what is inside here, so that a subclass need not call ``super().__init__()`` first."""
        flow = super().__new__(cls)
        flow._reset()
        flow._state = None
        return flow

    def __init__(self, **options: Any) -> None:
        self._set_options(options)
        if self._state is None:
            self._state = states.create(self.initial_state, _declared(type(self)))
        if not self.suppress_flow_events and not _quiet.get():
            contextvars.copy_context().run(self._tell_of_it)

    # -- what it is

    @classmethod
    def flow_definition(cls) -> FlowDefinition:
        """The methods of this class and what each waits for. Raises `BadFlow` on what can never run."""
        if cls._definition is None:
            cls._definition = define(cls)
        return cls._definition

    @property
    def flow_name(self) -> str:
        """The flow's name: ``name``, or else its class's."""
        return self.name if isinstance(self.name, str) else type(self).__name__

    @flow_name.setter
    def flow_name(self, name: str) -> None:
        self.name = name

    @property
    def state(self) -> S:
        """The state: inside a method its own copy, elsewhere what all that are done have made of it."""
        found = self._execution()
        return typing.cast(S, found.state if found is not None else self.committed_state)

    @property
    def committed_state(self) -> states.State:
        """What all that are done have made of the state."""
        if self._state is None:
            self._state = states.create(self.initial_state, _declared(type(self)))
        found: states.State = self._state
        return found

    @property
    def flow_id(self) -> str:
        """The id in the state."""
        return states.state_id(self.committed_state)

    # -- running it

    def kickoff(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: dict[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
        restore_from_state_id: str | None = None,
    ) -> Any:
        """Run the flow here and return the output of the method that was done last.

        ``inputs`` go into the state; of a restored flow those that it was not begun with. Raises what the first failing
        method raised, once nothing else is at work. A flow that has to wait for a person returns a
        `HumanFeedbackPending`; ``resume`` continues with it.

        With a ``from_checkpoint`` that has a ``restore_from``, resume from there: what is done is not done again. A
        ``checkpoint=`` of the flow that has one does so if it holds something unfinished, and otherwise starts over.
        For an ``id`` among the inputs and ``restore_from_state_id``, see `runner.flows.persistence`.

        With ``stream`` it returns what `stream_events` does, and those below what `astream` does.
        """
        stop_if_read(self, inputs)
        if self.stream and not outermost.is_begun():
            return self.stream_events(
                inputs=inputs,
                input_files=input_files,
                from_checkpoint=from_checkpoint,
                restore_from_state_id=restore_from_state_id,
            )
        restored = self._from(from_checkpoint, restore_from_state_id)
        if restored is not None:
            return restored.kickoff(inputs=inputs, input_files=input_files)
        return wait_for(self.kickoff_async(inputs, input_files, None, restore_from_state_id))

    async def kickoff_async(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: dict[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
        restore_from_state_id: str | None = None,
    ) -> Any:
        """`kickoff` on this event loop; methods that are no coroutine functions run in threads beside it."""
        stop_if_read(self, inputs)
        if self.stream and not outermost.is_begun():
            return self.astream(
                inputs=inputs,
                input_files=input_files,
                from_checkpoint=from_checkpoint,
                restore_from_state_id=restore_from_state_id,
            )
        restored = self._from(from_checkpoint, restore_from_state_id)
        if restored is not None:
            return await restored.kickoff_async(inputs=inputs, input_files=input_files)
        if isinstance(self.checkpoint, CheckpointConfig) and self.checkpoint.restore_from is not None:
            engine_of("flow_snapshots").take_up(self, self.checkpoint)
        self.input_files = dict(input_files or {})
        return await engine_of("flows").kickoff(self, inputs, restore_from_state_id)

    async def akickoff(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: dict[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
        restore_from_state_id: str | None = None,
    ) -> Any:
        """The same as `kickoff_async`."""
        return await self.kickoff_async(inputs, input_files, from_checkpoint, restore_from_state_id)

    def stream_events(self, **given: Any) -> "StreamSession[Any]":
        """Run the flow as what this returns is iterated: its events are frames, its output is the ``result``.

        ``given`` is what `kickoff` takes.
        """
        session: StreamSession[Any] = engine_of("streams").of_flow(partial(self.kickoff, **given))
        return session

    def astream(self, **given: Any) -> "AsyncStreamSession[Any]":
        """`stream_events` on this event loop, by ``async for``."""
        session: AsyncStreamSession[Any] = engine_of("streams").of_flow_async(partial(self.kickoff_async, **given))
        return session

    def resume(self, feedback: str = "", method: str | None = None) -> Any:
        """Answer what the flow waits for, and resume; ``method`` says whose question, where there are several."""
        return wait_for(self.resume_async(feedback, method))

    async def resume_async(self, feedback: str = "", method: str | None = None) -> Any:
        """`resume` on this event loop."""
        return await engine_of("flows").resume(self, feedback, method)

    # -- for methods

    def step(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Inside a method: do ``function(*args, **kwargs)`` once, however often the method restarts.

        The result is what JSON (or the function's return annotation) gives back. An async function gives a coroutine.
        """
        return self._inside("step").journal.step(str(name), function, args, kwargs)

    def path(self, name: str | os.PathLike[str]) -> Path:
        """Where a file of the flow's folder is, to be read: as ``ctx.path`` of a task."""
        return self._task_files().path(name)

    workdir = _Workdir()
    """A folder to write in, whose files are kept: as ``ctx.workdir`` of a task."""

    def _task_files(self) -> TaskFiles:
        return current.get() or TaskFiles(partial(root_of, type(self)), Path.cwd)

    def pause(self, message: str, metadata: dict[str, Any] | None = None) -> str:
        """Inside a method: wait for a person, and return what they answered.

        The method stops here and, with the answer, restarts; its `step` results are kept.
        """
        return self._inside("pause").ask(message, metadata, pause=True)

    def ask(self, message: str, timeout: float | None = None, metadata: dict[str, Any] | None = None) -> str | None:
        """`pause`, but whoever sits at the terminal is asked right there, or the flow's ``input_provider``.

        A provider's answer is None where it fails, or takes longer than ``timeout`` seconds. A person who is waited for
        has no such limit.
        """
        at = self._inside("ask")
        provider = self.input_provider or flow_config.input_provider
        if provider is None:
            found = InputResponse(at.ask(message, metadata, pause=False))
        else:
            found = at.ask_provider(provider, message, metadata, timeout)
        about = {"message": message, "method_name": at.method.name, "metadata": metadata}
        answer = {"response": found.text, "response_metadata": found.metadata, "timestamp": datetime.now(UTC)}
        self.input_history.append({**about, **answer})
        return found.text

    # -- checkpoints

    @classmethod
    def from_checkpoint(cls, config: CheckpointConfig, *, code: "Flow[Any] | None" = None) -> "Flow[Any]":
        """The flow of the checkpoint ``config.restore_from`` names, as this class, with its methods and typed state.

        Its ``kickoff`` resumes from there, its ``resume`` answers what it waited for. ``code`` is a flow that is to be
        that one itself. The rest of ``config`` says how its own checkpoints are written.
        """
        return typing.cast("Flow[Any]", restore(cls, config, code=_code_of(cls, code)))

    @classmethod
    def fork(cls, config: CheckpointConfig, branch: str | None = None) -> "Flow[Any]":
        """`from_checkpoint` on a branch of its own and with an id of its own, so that both lines continue."""
        flow = typing.cast("Flow[Any]", restore(cls, config, code=_code_of(cls), fork=True, branch=branch))
        states.put(flow.committed_state, states.Patch({"id": str(uuid4())}))
        return flow

    @classmethod
    def plot(cls, filename: str = "flow.html", show: bool = True) -> str:
        """Write a page with a picture of the flow and return its path. With ``show`` it opens in a browser."""
        import webbrowser  # which, with what draws, flows that are not plotted do not pay for

        from runner.flows import plot

        path = plot.write(cls.flow_definition(), filename)
        if show:
            webbrowser.open(path.as_uri())
        return str(path)

    @classmethod
    def from_pending(cls, flow_id: str, persistence: Any = None, **options: Any) -> "Flow[Any]":
        """The flow of that id that waits for a person, to be continued by `resume`: in another process, days later.

        It is looked for where its states are kept (``persistence``, or that of ``@persist``; else in the user's folder
        for state, see ``RUNNER_STATE_DIR``). ``options`` are the flow's. Raises `ValueError` where none waits.
        """
        found: Flow[Any] = engine_of("flows").from_pending(cls, flow_id, persistence, options)
        return found

    @property
    def stored_methods(self) -> list[str]:
        """The names of the methods that the flow of a checkpoint had, where this is one without its code."""
        return list(self.stored.get("methods") or ())

    @classmethod
    def declared_state(cls) -> Any:
        """What stands in ``Flow[...]``."""
        return _declared(cls)

    # -- for those who run it

    def function_of(self, at: execution.Execution) -> Callable[..., Any]:
        """What an execution calls."""
        found: Callable[..., Any] = getattr(self, at.method.name)
        return found

    def typed_by(self, method: str) -> Callable[..., Any] | None:
        """Whose return annotation says what the output of a method is."""
        return getattr(self, method, None)

    def leave_out(self, field: str, value: Any) -> None:
        """A field of the state is no JSON: it is in no checkpoint, which is logged once."""
        if field not in self._left_out:
            self._left_out.add(field)
            feedback.logger.warning(
                "the field %r of the state of flow %s is a %s, which no checkpoint can hold: "
                "a restored flow begins without it",
                field, self.flow_name, type(value).__qualname__,
            )  # fmt: skip

    def keep_state(self, at: execution.Execution) -> None:
        """Keep the state as a method has it, where states are kept; on the fleet the run does."""
        if self.has_terminal and (place := persistence_of(self)) is not None:
            place.save_state(self.flow_id, "_ask_checkpoint", states.dump(at.state, self.leave_out))

    def _tell_of_it(self) -> None:
        if kickoff.depth.get() == 0:
            kickoff.enter(None)  # a flow that is not kicked off is in no state, and no state keeps it
        event_bus.emit(self, FlowCreatedEvent(flow_name=self.flow_name))

    def _set_options(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            known = any(
                name in vars(owner) or name in vars(owner).get("__annotations__", {}) for owner in type(self).__mro__
            )
            if not known or name.startswith("_") or callable(getattr(type(self), name, None)):
                raise TypeError(f"{type(self).__name__} has no option {name!r}")
            setattr(self, name, value)
        if not isinstance(self.checkpoint, CheckpointConfig | bool | None):
            raise TypeError(f"checkpoint must be a CheckpointConfig, True, False or None, not {self.checkpoint!r}")

    def _from(self, config: CheckpointConfig | None, state_id: str | None) -> Any:
        if config is not None and state_id is not None:
            raise ValueError("from_checkpoint and restore_from_state_id cannot be combined: leave one of them out")
        return apply_checkpoint(self, config)

    def _execution(self) -> execution.Execution | None:
        found = execution.within(self)
        if found is None and len(self._at_work) == 1:
            # A thread that a method started itself has no context; with one method at work there is no doubt.
            found = next(iter(self._at_work.values()), None)
        return found

    def _inside(self, what: str) -> execution.Execution:
        if (found := self._execution()) is None:
            raise RuntimeError(f"{type(self).__name__}.{what}() is for the methods of a flow, while they run")
        return found

    # Names of before, by which tests of others reach inside.

    def _copy_state(self) -> S:
        return typing.cast(S, states.twin(self.committed_state))

    def _request_human_feedback(
        self,
        message: str,
        output: Any,
        metadata: dict[str, Any] | None = None,  # noqa: ARG002 - the name is public
        emit: list[str] | None = None,
        method_name: str = "",
    ) -> str | None:
        if not self.has_terminal:
            return None
        labels = f" ({', '.join(emit)})" if emit else ""
        return execution.on_terminal(f"{method_name}: {output}\n{message}{labels}")

    def _collapse_to_outcome(self, feedback: str, outcomes: list[str], llm: Any, default: str | None = None) -> str:
        return choose(feedback, outcomes, llm, default)


def _code_of(flow_class: type[Flow[Any]], flow: Flow[Any] | None = None) -> Any:
    """Whose code a restored flow gets: the given one's, else that of the class that was asked; of `Flow`, who fits."""
    return flow_class if flow is None and flow_class is not Flow else flow


def created_quietly() -> ContextValue[bool]:
    """Creating flows in this context is not reported: they are restored ones."""
    return ContextValue(_quiet, True)


def _declared(flow_class: type) -> Any:
    """What stands in ``Flow[...]``."""
    for owner in flow_class.__mro__:
        for base in vars(owner).get("__orig_bases__", ()):
            origin = typing.get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Flow):
                declared = typing.get_args(base)[0]
                if not isinstance(declared, TypeVar):
                    return declared
    return None
