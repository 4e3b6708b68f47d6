"""``Flow``: the class that authors subclass."""

import asyncio
import contextvars
import os
import typing
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from runner.bundles.reading import stop_if_read
from runner.bundles.target import root_of
from runner.bundles.task_files import LocalFiles, TaskFiles, current
from runner.core import live_objects
from runner.core.annotations import own_annotations
from runner.core.context_value import ContextValue
from runner.core.runtime import engine_of
from runner.events import FlowCreatedEvent, event_bus, kickoff
from runner.flows import execution, feedback
from runner.flows import state as states
from runner.flows.decorators import human_feedback, listen, router, start
from runner.flows.definition import FlowDefinition, and_, define, or_
from runner.flows.feedback import choose
from runner.flows.flow_log import FlowLog
from runner.flows.input_provider import InputResponse, flow_config
from runner.flows.machine import MAX_METHOD_CALLS
from runner.flows.memory import MemoryMethods
from runner.flows.persistence import persistence_of
from runner.flows.schema import INITIAL_STATE_CLASS_MARKER as _INITIAL_STATE_CLASS_MARKER
from runner.flows.state import FlowState
from runner.providers.config import CheckpointConfig
from runner.snapshots import apply_checkpoint, restore
from runner.streaming import nested_kickoffs

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
    """An attribute that a flow's own code may override."""

    def __get__(self, flow: Any, owner: type) -> Any:
        return self if flow is None else flow._task_files().workdir


class Flow(FlowLog, MemoryMethods, Generic[S]):
    """Methods that trigger each other, and a state that they share.

    ``kickoff`` runs the flow in this process; ``runner submit`` runs it on the fleet. Each method works on its own copy
    of ``self.state``; its changes are merged when it is done (`runner.flows.state`). Other attributes of ``self`` exist
    only in this process: no checkpoint has them, and on the fleet each method starts without them.
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
        """Create the private state here, so that a subclass need not call ``super().__init__()`` first."""
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
        """Return the methods of this class and their triggers. Raises `BadFlow` for a method that can never run."""
        if cls._definition is None:
            cls._definition = define(cls)
        return cls._definition

    @property
    def flow_name(self) -> str:
        """The flow's name: ``name``, else its class's."""
        return self.name if isinstance(self.name, str) else type(self).__name__

    @flow_name.setter
    def flow_name(self, name: str) -> None:
        self.name = name

    @property
    def state(self) -> S:
        """The state: inside a method its own copy, elsewhere the merged state of all finished methods."""
        found = self._execution()
        return typing.cast(S, found.state if found is not None else self.committed_state)

    @property
    def committed_state(self) -> states.State:
        """The merged state of all finished methods."""
        if self._state is None:
            self._state = states.create(self.initial_state, _declared(type(self)))
        found: states.State = self._state
        return found

    @property
    def flow_id(self) -> str:
        """The ``id`` in the state."""
        return states.state_id(self.committed_state)

    # -- running it

    def kickoff(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: dict[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
        restore_from_state_id: str | None = None,
    ) -> Any:
        """Run the flow in this process and return the output of the method that finished last.

        Args:
            inputs: values for the state; for a restored flow, new ones. An ``id`` starts from the state that
                ``@persist`` saved.
            from_checkpoint: with a ``restore_from``, resume from there: finished methods are not repeated. A
                ``restore_from`` in the flow's own ``checkpoint`` resumes an unfinished flow, and otherwise has no
                effect.
            restore_from_state_id: start from the saved state of this id, see `runner.flows.persistence`.

        If the flow has to wait for a person, returns a `HumanFeedbackPending`; ``resume`` continues. With ``stream``,
        returns what `stream_events` returns. Raises what the first failing method raised, once the others have ended.
        """
        stop_if_read(self, inputs)
        given: dict[str, Any] = {"inputs": inputs, "input_files": input_files, "from_checkpoint": from_checkpoint}
        if self.stream and not nested_kickoffs.is_begun():
            return self.stream_events(**given, restore_from_state_id=restore_from_state_id)
        # No event loop runs while a provider reads it.
        if (restored := self._from(from_checkpoint, restore_from_state_id)) is not None:
            return restored.kickoff(inputs=inputs, input_files=input_files)
        return _wait_for(self.kickoff_async(inputs, input_files, None, restore_from_state_id))

    async def kickoff_async(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: dict[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
        restore_from_state_id: str | None = None,
    ) -> Any:
        """`kickoff` on this event loop; methods that are not coroutine functions run in threads."""
        stop_if_read(self, inputs)
        if self.stream and not nested_kickoffs.is_begun():
            given: dict[str, Any] = {"inputs": inputs, "input_files": input_files, "from_checkpoint": from_checkpoint}
            return self.astream(**given, restore_from_state_id=restore_from_state_id)
        if (restored := self._from(from_checkpoint, restore_from_state_id)) is not None:
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
        """Return a session that runs the flow as it is iterated: it yields events as frames, then has the ``result``.

        The arguments are those of `kickoff`.
        """
        session: StreamSession[Any] = engine_of("streams").of_flow(partial(self.kickoff, **given))
        return session

    def astream(self, **given: Any) -> "AsyncStreamSession[Any]":
        """`stream_events` on this event loop, for ``async for``."""
        session: AsyncStreamSession[Any] = engine_of("streams").of_flow_async(partial(self.kickoff_async, **given))
        return session

    def resume(self, feedback: str = "", method: str | None = None) -> Any:
        """Answer the question that the flow waits for, and resume; ``method`` selects one of several questions."""
        return _wait_for(self.resume_async(feedback, method))

    async def resume_async(self, feedback: str = "", method: str | None = None) -> Any:
        """`resume` on this event loop."""
        return await engine_of("flows").resume(self, feedback, method)

    # -- for methods

    def step(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``function(*args, **kwargs)`` durably inside a method: once, however often the method restarts.

        Returns the result after a round trip through JSON, or converted by the function's return annotation; for an
        async function, an awaitable.
        """
        return self._inside("step").journal.step(str(name), function, args, kwargs)

    def path(self, name: str | os.PathLike[str]) -> Path:
        """Return the path of a file in the flow's folder, for reading: see ``ctx.path`` of a task."""
        return self._task_files().path(name)

    workdir = _Workdir()
    """A folder to write in, whose files are kept: as ``ctx.workdir`` of a task."""

    def _task_files(self) -> TaskFiles:
        return current.get() or LocalFiles(partial(root_of, type(self)))

    def pause(self, message: str, metadata: dict[str, Any] | None = None) -> str:
        """Wait for a person inside a method, and return the answer.

        The method stops here, and restarts with the answer; its recorded steps are replayed.
        """
        return self._inside("pause").ask(message, metadata, pause=True)

    def ask(self, message: str, timeout: float | None = None, metadata: dict[str, Any] | None = None) -> str | None:
        """Ask a person: at the terminal, or through the flow's ``input_provider``; without either, as `pause` does.

        Returns the answer. It is None if a provider fails, or takes longer than ``timeout`` seconds; a person has no
        such limit.
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
        """Return the flow of the checkpoint that ``config.restore_from`` names, as this class, with its typed state.

        Its ``kickoff`` resumes from there, its ``resume`` answers its question. ``code`` is a flow that is to continue
        as the restored one. The other fields of ``config`` say how it writes its own checkpoints.
        """
        return typing.cast("Flow[Any]", restore(cls, config, code=_code_of(cls, code)))

    @classmethod
    def fork(cls, config: CheckpointConfig, branch: str | None = None) -> "Flow[Any]":
        """`from_checkpoint` on a new branch and with a new id, so that the original can continue as well."""
        flow = typing.cast("Flow[Any]", restore(cls, config, code=_code_of(cls), fork=True, branch=branch))
        states.put(flow.committed_state, states.Patch({"id": str(uuid4())}))
        return flow

    @classmethod
    def plot(cls, filename: str = "flow.html", show: bool = True) -> str:
        """Write a page with a diagram of the flow and return its path. With ``show`` it opens in a browser."""
        import webbrowser  # which, with what draws, flows that are not plotted do not pay for

        from runner.flows import plot

        path = plot.write(cls.flow_definition(), filename)
        if show:
            webbrowser.open(path.as_uri())
        return str(path)

    @classmethod
    def from_pending(cls, flow_id: str, persistence: Any = None, **options: Any) -> "Flow[Any]":
        """Return the flow of this id that waits for a person, so that `resume` continues it, days later in any process.

        It is loaded from ``persistence``, that of ``@persist``, or the user's state folder (``RUNNER_STATE_DIR``).
        ``options`` are those of the flow. Raises `ValueError` if no such flow waits.
        """
        found: Flow[Any] = engine_of("flows").from_pending(cls, flow_id, persistence, options)
        return found

    @property
    def stored_methods(self) -> list[str]:
        """The names of the methods of a restored flow that has no code."""
        return list(self.stored.get("methods") or ())

    @classmethod
    def declared_state(cls) -> Any:
        """The type in ``Flow[...]``."""
        return _declared(cls)

    # -- for those who run it

    def function_of(self, at: execution.Execution) -> Callable[..., Any]:
        """Return the function that an execution calls."""
        found: Callable[..., Any] = getattr(self, at.method.name)
        return found

    def typed_by(self, method: str) -> Callable[..., Any] | None:
        """Return the function whose return annotation is the type of the method's output."""
        return getattr(self, method, None)

    def leave_out(self, field: str, value: Any) -> None:
        """Leave a field that is not JSON out of checkpoints; logged once."""
        if field not in self._left_out:
            self._left_out.add(field)
            feedback.logger.warning(
                "the field %r of the state of flow %s is a %s, which no checkpoint can hold: "
                "a restored flow begins without it",
                field, self.flow_name, type(value).__qualname__,
            )  # fmt: skip

    def keep_state(self, at: execution.Execution) -> None:
        """Save the state after a method, if there is a persistence; on the fleet the run has it."""
        if self.has_terminal and (place := persistence_of(self)) is not None:
            place.save_state(self.flow_id, "_ask_checkpoint", states.dump(at.state, self.leave_out))

    def _tell_of_it(self) -> None:
        if kickoff.depth.get() == 0:
            kickoff.enter(None)  # a flow that is not kicked off is in no state, and no state keeps it
        event_bus.emit(self, FlowCreatedEvent(flow_name=self.flow_name))

    def _set_options(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            known = any(name in vars(owner) or name in own_annotations(owner) for owner in type(self).__mro__)
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
    """Return the code for a restored flow: the given flow, else the class that was asked; for `Flow`, one that fits."""
    return flow_class if flow is None and flow_class is not Flow else flow


def created_quietly() -> ContextValue[bool]:
    """Flows created in this context are restored ones, and emit no ``flow_created``."""
    return ContextValue(_quiet, True)


def _declared(flow_class: type) -> Any:
    """Return the type in ``Flow[...]``."""
    for owner in flow_class.__mro__:
        for base in vars(owner).get("__orig_bases__", ()):
            origin = typing.get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Flow):
                declared = typing.get_args(base)[0]
                if not isinstance(declared, TypeVar):
                    return declared
    return None


def _wait_for(coroutine: Any) -> Any:
    """The result of a coroutine, also where this thread's event loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="flow") as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()
