"""`Task`, and the context object that its ``run``, work in plain Python, receives. Without ``run`` an agent does it."""

import asyncio
import contextvars
import difflib
import functools
import inspect
import os
import typing
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, TypeVar, cast, overload
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from runner.agents import Agent
from runner.bundles import task_files as workdir
from runner.bundles.task_files import LocalFiles
from runner.core.annotations import signature_of
from runner.core.class_names import Names
from runner.core.made_once import made_once
from runner.core.output import TaskOutput
from runner.core.private_state import Link, Linked
from runner.crews.map_options import refuse_on_error, refuse_written_options
from runner.engine.work import Work

if TYPE_CHECKING:
    from runner.journal.step_map import OnError, StepMap

T = TypeVar("T")
P = ParamSpec("P")

_at_work: ContextVar[bool] = ContextVar("runner_at_work", default=False)
"""Whether this context is a task's, or comes of one's."""


class Task(BaseModel):
    """One piece of work.

    Args:
        context: the tasks whose outputs it works on. Default: every earlier task.
        timeout: seconds for one attempt.
        max_retries: how many attempts may follow the first, after an exception.
        retry_delay: seconds before the first of them.
        guardrail: a function of the output that returns ``(True, output)`` or ``(False, why)``. After False the task is
            asked again, at most ``guardrail_max_retries`` times.
        pool: where a worker runs it: "thread", among many others, or "process", alone, where a timeout can interrupt
            any code. Default: a process for a plain function as ``run`` and for an agent whose model is a class of
            yours; a thread for tasks that mostly wait: other agents, and an ``async def`` as ``run``.
        config: a dict of fields, such as an entry of a project's YAML. Arguments override it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    entity_type: ClassVar[str] = "task"

    id: UUID = Field(default_factory=uuid4)
    name: str | None = None
    description: str = ""
    expected_output: str = ""
    run: Callable[..., Any] | None = None
    agent: Agent | None = None
    context: list["Task"] | None = None
    async_execution: bool = False
    output_pydantic: type[BaseModel] | None = None
    output_json: type[BaseModel] | None = None
    output_file: str | None = None
    callback: Callable[[TaskOutput], Any] | None = None
    tools: list[Any] = Field(default_factory=list)
    guardrail: Any = None
    guardrails: list[Any] = Field(default_factory=list)
    guardrail_max_retries: int = Field(default=3, ge=0)
    human_input: bool = False
    markdown: bool = False
    config: dict[str, Any] | None = None
    timeout: float | None = Field(default=None, gt=0)
    max_retries: int = Field(default=0, ge=0)
    retry_delay: float = Field(default=1.0, ge=0)
    pool: Literal["process", "thread"] | None = None
    output: TaskOutput | None = Field(default=None, exclude=True)

    _crew: Link = PrivateAttr(default_factory=Link)

    crew = Linked("_crew", "The crew it belongs to, once it does.")

    @model_validator(mode="before")
    @classmethod
    def _as_configured(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(config := given.get("config"), dict):
            return {**config, **{name: value for name, value in given.items() if name != "config"}}
        return given

    @field_validator("run")
    @classmethod
    def _takes_a_context(cls, run: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if run is None:
            return None
        try:
            signature_of(run).bind(object())
        except TypeError:
            name = f"{getattr(run, '__name__', type(run).__name__)}()"
            raise ValueError(f"{name} must take one argument, the context, and require no other") from None
        except ValueError:  # a builtin without a signature: it will tell when called
            pass
        refuse_written_options(run)
        return run

    @property
    def context_is_default(self) -> bool:
        """Whether ``context`` was not given, which means every earlier task."""
        return "context" not in self.model_fields_set  # and so it stays in copies

    @property
    def checks(self) -> list[Any]:
        """The guardrails, in order."""
        return [*([self.guardrail] if self.guardrail is not None else []), *self.guardrails]

    def output_model(self) -> type[BaseModel] | None:
        """The model that the code names for this task's output, if any."""
        if self.output_pydantic or self.output_json:
            return self.output_pydantic or self.output_json
        if self.run is None:
            return None
        try:
            returned = getattr(self.run, "__annotations__", {}).get("return")  # from Python 3.14 on it is resolved here
            if returned is not None and not isinstance(returned, type):  # else there is nothing to resolve
                returned = typing.get_type_hints(self.run).get("return")
        except Exception:  # an annotation that does not resolve names no model
            return None
        return returned if isinstance(returned, type) and issubclass(returned, BaseModel) else None

    def names(self) -> Names:
        """The classes that the task's code can name, from which its output is restored in another process."""
        functions = [one for one in (self.run, *self.checks) if callable(one)]
        return Names(functions, [one for one in (self.output_pydantic, self.output_json) if one is not None])


class ConditionalTask(Task):
    """A task that runs only if ``condition`` returns true for the previous output; else its output is ""."""

    condition: Callable[[TaskOutput], Any] | None = None

    def should_execute(self, context: TaskOutput) -> bool:
        """Call the condition with the previous output. Raises `ValueError` if there is none."""
        if self.condition is None:
            raise ValueError(f"the conditional task {self.name or self.description[:40]!r} has no condition")
        return bool(self.condition(context))


class Outputs(Mapping[str, TaskOutput]):
    """The outputs of the tasks that this one depends on, directly or not, by name; each is fetched at first use.

    ``hidden`` ones can be read by name, but are not listed.
    """

    def __init__(
        self, work: Work, finish: Callable[[str, TaskOutput], TaskOutput], hidden: Collection[str] = ()
    ) -> None:
        self._work = work
        self._finish = finish
        self._hidden = hidden
        self._have: dict[str, TaskOutput] = {key: finish(key, output) for key, output in work.given.items()}
        self._names: list[str] | None = None

    def _earlier(self) -> list[str]:
        if self._names is None:
            self._names = self._work.plan.earlier(self._work.key)
        return self._names

    def __getitem__(self, name: str) -> TaskOutput:
        self._work.uses.task(name)
        if name not in self._have:
            if name not in self._earlier():
                near = difflib.get_close_matches(name, self._earlier(), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self._earlier()) or 'none'}"
                raise KeyError(f"{name!r} is not a task that {self._work.key!r} depends on; {hint}")
            self._have[name] = self._finish(name, self._work.fetch([name])[name])
        return self._have[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._earlier() if name not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def fetch_all(self) -> None:
        """Fetch the missing outputs in one round trip."""
        missing = [name for name in self if name not in self._have]
        if missing:
            for name, output in self._work.fetch(missing).items():
                self._have[name] = self._finish(name, output)


class TaskContext:
    """The argument of a task's ``run``: inputs, earlier outputs, durable steps, files, log and progress.

    ``feedback`` is the objection of a guardrail, or of a person, to the previous output when the task runs again; else
    None. ``attempt`` counts from 1.
    """

    def __init__(
        self,
        work: Work,
        fill: Callable[[], Task],
        finish: Callable[[str, TaskOutput], TaskOutput],
        hidden: Collection[str] = (),
    ) -> None:
        self._work, self._fill = work, fill
        self._inputs = work.uses.watch(work.inputs)
        self.outputs = Outputs(work, finish, hidden)
        self.run_id = work.run_id
        self.branch = work.branch
        self.attempt = work.attempt
        self.feedback: str | None = None
        _at_work.set(True)
        self._context = contextvars.copy_context()
        self._files = workdir.current.get() or LocalFiles(Path.cwd)

    @made_once
    def task(self) -> Task:
        """A copy of the task, with the inputs filled into its texts."""
        return self._fill()  # few ask, and to copy it costs more than to do a small one

    def drop_copy(self) -> None:
        """Let go of that copy, which has not been changed: a task that waits for its model has read its texts."""
        try:
            del self.task
        except AttributeError:  # it was not read
            return

    @property
    def inputs(self) -> dict[str, Any]:
        """The run's inputs by name. Reads are recorded: a fork that changes one runs again the tasks that read it."""
        self._work.uses.hand_out()
        return self._inputs

    @property
    def context(self) -> list[TaskOutput]:
        """The outputs of the tasks in the declared context, in its order; without one, of every earlier task."""
        declared = self._work.plan.by_key[self._work.key].context
        if declared is None:
            self.outputs.fetch_all()
            return [self.outputs[name] for name in self.outputs]
        return [self.outputs[name] for name in declared]

    @overload
    def step(self, name: str, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn(*args, **kwargs)`` durably: its result is recorded, and replayed when the task runs again.

        The step is identified by ``name``, the arguments and its occurrence. Returns the result after a round trip
        through JSON (or converted by the function's return annotation), also the first time; for an async function, an
        awaitable. Raises what ``fn`` raises, which is not recorded, and TypeError for a result that is not JSON.
        """
        if not callable(fn):
            raise TypeError(f"ctx.step({name!r}, fn, *args) takes a function, got {type(fn).__qualname__}")
        if _at_work.get():
            watch = self._work.watch(str(name), fn) if self._work.watch else None
            return self._work.journal.step(str(name), fn, args, kwargs, watch)
        # A thread that was given no context, as ThreadPoolExecutor's are: it is at this task all the same.
        context = self._context.copy()
        found = context.run(self.step, name, fn, *args, **kwargs)
        return _within(found, context) if inspect.iscoroutine(found) else found

    def map(
        self,
        fn: Callable[[Any], T],
        items: Iterable[Any],
        *,
        at_once: int = 8,
        name: str = "",
        on_error: "OnError" = "first",
    ) -> list[T]:
        """Call ``fn(item)`` durably for each item, on ``at_once`` threads.

        Each call is a step like those of `step`, identified by ``name`` (default: the function's), the item and its
        occurrence. Several results are recorded in one write, which makes short steps cheap. Items may come from a
        generator, which is read as steps end. A map that takes more than a second reports its progress among the run's
        events.

        Returns the results in the order of the items. An error is not recorded, so that item is called again when the
        task runs again. ``on_error`` says what an error does: with "first" no further item begins, and the error is
        raised once those under way are recorded; with "all" every item is done, then an `ExceptionGroup` is raised;
        with "collect" errors are returned in place of results.
        """
        if inspect.iscoroutinefunction(fn):
            raise TypeError("ctx.map(fn, items) takes a plain function; for an async one: await ctx.amap(fn, items)")
        steps = self._step_map(fn, items, at_once, name, on_error)
        return steps().run() if _at_work.get() else self._context.copy().run(lambda: steps().run())

    async def amap(
        self,
        fn: Callable[[Any], Awaitable[T]],
        items: Iterable[Any],
        *,
        at_once: int = 8,
        name: str = "",
        on_error: "OnError" = "first",
    ) -> list[T]:
        """`map` for an async function: at most ``at_once`` calls are awaited concurrently."""
        if not inspect.iscoroutinefunction(fn):
            raise TypeError("ctx.amap(fn, items) takes an async function; for a plain one: ctx.map(fn, items)")
        steps = self._step_map(fn, items, at_once, name, on_error)
        return await steps().arun()

    def _step_map(
        self, fn: Callable[..., Any], items: Iterable[Any], at_once: int, name: str, on_error: "OnError"
    ) -> "Callable[[], StepMap]":
        from runner.journal.step_map import StepMap

        called = name or getattr(fn, "__name__", "")
        if not called:
            raise TypeError(f"{type(fn).__qualname__} has no name: ctx.map(fn, items, name='...')")
        if at_once < 1:
            raise ValueError(f"ctx.map(at_once={at_once!r}): at_once must be at least 1")
        refuse_on_error(on_error)
        clock = self._work.journal.clock
        began = reported = clock.monotonic()

        def report(ended: int, every: int | None) -> None:
            """Report progress, less often the longer the map takes."""
            nonlocal reported
            now = clock.monotonic()
            if now - reported > max(1.0, (now - began) / 50):
                reported = now
                self.progress(ended, every, called)

        watch = None if self._work.watch is None else functools.partial(self._work.watch, called, fn)
        return lambda: StepMap(
            self._work.journal, called, fn, items, at_once=at_once, on_error=on_error, watch=watch, report=report
        )

    def tool(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Wrap a function so that each call of it is a step: for tools of an agent of another framework.

        The wrapper has the function's name, signature and docstring, which frameworks describe to the model, and is
        async if the function is. If the framework's tool call is a step itself, or ``fn`` is ``@durable``, there is
        only that one step. Inside ``fn``, `idempotency_key` returns the step's key.
        """
        from runner.journal import tool_uses

        if tool_uses.is_durable(fn):
            return fn

        @functools.wraps(fn)
        def keyed(*args: P.args, **kwargs: P.kwargs) -> T:
            with tool_uses.with_key():
                return fn(*args, **kwargs)

        @functools.wraps(fn)
        async def akeyed(*args: P.args, **kwargs: P.kwargs) -> Any:
            with tool_uses.with_key():
                return await cast("Awaitable[Any]", fn(*args, **kwargs))

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if tool_uses.is_in_tool(fn.__name__):
                return fn(*args, **kwargs)
            return self.step(fn.__name__, keyed, *args, **kwargs)

        @functools.wraps(fn)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            if tool_uses.is_in_tool(fn.__name__):
                return await cast("Awaitable[Any]", fn(*args, **kwargs))
            return await cast("Awaitable[Any]", self.step(fn.__name__, akeyed, *args, **kwargs))

        found: Any = acall if inspect.iscoroutinefunction(fn) else call
        found.records_uses = tool_uses.FUNCTION
        return cast("Callable[P, T]", found)

    def path(self, name: str | os.PathLike[str]) -> Path:
        """Return the absolute path of a file beside the crew file, as in ``ctx.path("data/x.csv")``: read-only.

        Raises ValueError for a name that points outside the crew's folder.
        """
        return self._files.path(name)

    @property
    def workdir(self) -> Path:
        """A folder to write in. It starts with the files of the tasks committed before.

        New and changed files are stored with the task (up to 16 MB), are present for later tasks on any machine, and
        are part of the run's files. In `kickoff` it is the working directory.
        """
        return self._files.workdir

    def log(self, text: str) -> None:
        """Record a line among the run's events."""
        self._work.note("task_log", str(text))

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Report progress, in any unit, and a text, as in ``ctx.progress(3, 10, "pages read")``."""
        if not isinstance(done, int | float) or not isinstance(total, int | float | None):
            raise TypeError("ctx.progress(done, total=None, text='') takes numbers, then a text")
        amount = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        self._work.note("task_progress", f"{amount} {text}".strip())


async def _within(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
    return await asyncio.get_running_loop().create_task(coroutine, context=context)
