"""`Crew`: tasks in an order."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID, uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PrivateAttr

from runner.agents import Agent
from runner.bundles.reading import stop_if_read
from runner.core import live_objects
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.private_state import Private
from runner.core.runtime import engine_of
from runner.crews.context import Task
from runner.crews.planning import KEY as PLANNING
from runner.crews.planning import planner_task
from runner.journal.rate_limit import RateLimiter
from runner.llm.llm import as_model, model_name
from runner.providers.config import CheckpointConfig, Setting
from runner.streaming import nested_kickoffs


class Process(StrEnum):
    """The order in which a crew's tasks run."""

    sequential = "sequential"
    """One after the other; ``async_execution`` tasks side by side until the next synchronous one."""
    graph = "graph"
    """Each task as soon as the tasks in its ``context`` are done."""
    hierarchical = "hierarchical"
    """One after the other; a manager does each of them, and gives work to the crew's agents."""


class CrewOutput(BaseModel):
    """The output of a crew: the last task's, with those of all tasks."""

    raw: str = ""
    json_dict: Any = None
    pydantic: Any = Field(default=None, exclude=True)
    tasks_output: list[TaskOutput] = Field(default_factory=list)
    token_usage: UsageMetrics = Field(default_factory=UsageMetrics)

    def __str__(self) -> str:
        return self.raw


class Crew(BaseModel):
    """Tasks, their agents and their order. ``kickoff`` runs it here; ``runner submit`` runs it on the fleet."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    entity_type: ClassVar[str] = "crew"

    id: UUID = Field(default_factory=uuid4)
    name: str | None = None
    tasks: list[Task] = Field(default_factory=list)
    agents: list[Agent] = Field(default_factory=list)
    process: Process = Process.sequential
    manager_llm: Annotated[Any, BeforeValidator(as_model), PlainSerializer(model_name)] = None
    manager_agent: Agent | None = None
    planning: bool = False
    planning_llm: Annotated[Any, BeforeValidator(as_model), PlainSerializer(model_name)] = None
    checkpoint: Setting = None
    before_kickoff_callbacks: list[Callable[[dict[str, Any]], dict[str, Any] | None]] = Field(default_factory=list)
    after_kickoff_callbacks: list[Callable[[CrewOutput], CrewOutput | None]] = Field(default_factory=list)
    task_callback: Callable[[TaskOutput], Any] | None = None
    step_callback: Callable[[Any], Any] | None = None
    verbose: bool = False
    memory: bool = False
    stream: bool = False
    max_rpm: int | None = Field(default=None, ge=1)
    checkpoint_inputs: dict[str, Any] | None = None
    checkpoint_kickoff_event_id: str | None = None

    _usage_metrics: UsageMetrics | None = PrivateAttr(default=None)
    _pace: RateLimiter = PrivateAttr(default_factory=RateLimiter)
    _manager: Agent | None = PrivateAttr(default=None)
    _planner: Task | None = PrivateAttr(default=None)
    _by_key: dict[str, Task] = PrivateAttr(default_factory=dict)
    _inputs: dict[str, Any] | None = PrivateAttr(default=None)
    _kickoff_event_id: str | None = PrivateAttr(default=None)
    _restored: Any = PrivateAttr(default=None)
    _for_each_outputs: list[Any] = PrivateAttr(default_factory=list)
    _is_data: bool = PrivateAttr(default=False)
    _made_by: Any = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Register the crew with its tasks and agents, and in the registry that restored checkpoints search."""
        self.adopt()
        self._is_data = live_objects.is_data(context)
        live_objects.remember(self, context)

    def adopt(self) -> None:
        """Make this the crew of its tasks and agents, which may have been in another one."""
        for task in self.all_tasks:
            task.crew = self
        for agent in self.staff:
            agent.crew = self

    usage_metrics = Private[UsageMetrics | None]("_usage_metrics", "What its last kickoff in this process spent.")
    for_each_outputs = Private[list[Any]](
        "_for_each_outputs",
        "The outputs of the last `kickoff_for_each` by input, where it raised: None for one without; else [].",
    )
    pace = Private[RateLimiter]("_pace", "Counts its calls in this process.")
    made_by = Private[Any]("_made_by", "The object with ``@CrewBase`` that made it: its hooks are this crew's.")
    is_data = Private[bool]("_is_data", "Whether it came out of a checkpoint and met no code.")
    kickoff_event_id = Private[str | None]("_kickoff_event_id", "The event that its last kickoff started with.")

    @property
    def everyone(self) -> list[Agent]:
        """Its agents and its tasks' agents, each once."""
        found = {id(agent): agent for agent in [*self.agents, *(task.agent for task in self.tasks if task.agent)]}
        return list(found.values())

    @property
    def manager(self) -> Agent | None:
        """The agent that performs the tasks of a hierarchical crew."""
        if self.process is not Process.hierarchical:
            return None
        if self.manager_agent is None and self.manager_llm is not None and self._manager is None:
            self._manager = Agent(
                role="Crew Manager",
                goal="Have the crew do the task at hand, and answer for the result.",
                backstory="You know what each of your coworkers is good at. You give them work with all that they need "
                "to know for it, look at what they bring, and are content with nothing less than what was asked for.",
                llm=self.manager_llm,
                allow_delegation=True,
            )
        return self.manager_agent or self._manager

    @property
    def staff(self) -> list[Agent]:
        """All agents, including the manager and the planner."""
        others = [self.manager, self.planner.agent if self.planner else None]
        return [*self.everyone, *(agent for agent in others if agent is not None)]

    def doer(self, task: Task) -> Agent | None:
        """The agent that performs a task without ``run``: a hierarchical crew's manager, else the task's own."""
        if self.process is not Process.hierarchical or task.run is not None or task is self.planner:
            return task.agent
        return self.manager or task.agent

    def coworkers(self, task: Task) -> list[Agent]:
        """The agents to which the performer of a task may delegate."""
        doer = self.doer(task)
        if task.run is not None or doer is None or task is self.planner:
            return []
        if doer is self.manager:
            return [task.agent] if task.agent is not None else self.everyone
        return [agent for agent in self.everyone if agent is not doer] if doer.allow_delegation else []

    @property
    def planner(self) -> Task | None:
        """The task that makes the plan, if there is ``planning``."""
        private = self.__pydantic_private__ or {}  # not by the way of pydantic: see `by_key`
        found: Task | None = private.get("_planner")
        if self.planning and found is None:
            models = (self.planning_llm, *(agent.llm for agent in self.everyone), self.manager_llm)
            found = planner_task(self.tasks, next((llm for llm in models if llm is not None), None))
            self._planner = found
        return found

    @planner.setter
    def planner(self, task: Task | None) -> None:
        self._planner = task

    @property
    def all_tasks(self) -> list[Task]:
        """Its tasks, preceded by the planning task if there is ``planning``."""
        return [self.planner, *self.tasks] if self.planner is not None else self.tasks

    @property
    def task_keys(self) -> list[str]:
        """The key of each of `all_tasks`: its name, or ``task_N``."""
        first = [PLANNING] if self.planner is not None else []
        return first + [task.name or f"task_{i}" for i, task in enumerate(self.tasks, 1)]

    @property
    def by_key(self) -> dict[str, Task]:
        """The tasks by key."""
        private = self.__pydantic_private__  # the way of pydantic takes three calls, for each task several times
        return private["_by_key"] if private is not None else {}

    def file_keys(self) -> None:
        """Recompute the keys of the tasks: a copy of a crew has tasks of its own."""
        self._by_key = dict(zip(self.task_keys, self.all_tasks, strict=True))

    def kickoff(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: Mapping[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
    ) -> "CrewOutput | Any":
        """Run this crew in this process.

        Args:
            inputs: values by name for the placeholders in texts and for ``ctx.inputs``.
            from_checkpoint: with a ``restore_from``, resume from there: finished tasks are not repeated. The code
                (functions, tools, models) is this crew's, the data the checkpoint's. The first kickoff also resumes an
                unfinished run at the ``restore_from`` of the crew's own ``checkpoint``.

        Returns the output; with ``stream``, a `CrewStreamingOutput`, which runs the crew as it is iterated. Raises what
        a task raised.
        """
        stop_if_read(self, inputs)
        if self.stream and not nested_kickoffs.is_begun():
            return engine_of("streams").of_crew(
                partial(self.kickoff, inputs=inputs, **_given(input_files, from_checkpoint))
            )
        engine = engine_of("crews")
        given = from_checkpoint is not None
        restored = engine.apply_checkpoint(self, from_checkpoint) if given else engine.take_up(self)
        if restored is None:
            return engine.kickoff(self, inputs, input_files)
        result: CrewOutput = restored.kickoff(inputs=inputs, input_files=input_files)
        for mine, done in zip(self.tasks, getattr(restored, "tasks", ()), strict=False):
            mine.output = done.output
        return result

    async def kickoff_async(
        self,
        inputs: dict[str, Any] | None = None,
        input_files: Mapping[str, Any] | None = None,
        from_checkpoint: CheckpointConfig | None = None,
    ) -> "CrewOutput | Any":
        """`kickoff` in a thread, to be awaited."""
        stop_if_read(self, inputs)
        given = {"inputs": inputs, **_given(input_files, from_checkpoint)}
        if self.stream and not nested_kickoffs.is_begun():
            return engine_of("streams").of_crew_async(partial(self.kickoff_async, **given))
        return await engine_of("crews").in_thread(self, partial(self.kickoff, **given), config=from_checkpoint)

    akickoff = kickoff_async

    def kickoff_for_each(self, inputs: Sequence[dict[str, Any]]) -> "list[CrewOutput | Any]":
        """`kickoff` for each of the inputs in turn, on a copy of the crew. Returns the outputs in the same order.

        Afterwards ``usage_metrics`` is the sum. With ``stream`` it returns a stream for each, to be iterated in turn.
        Raises what a kickoff raises, without those after it; ``for_each_outputs`` then has the outputs of those before.
        For one run each on the fleet, see ``runner submit --each``.
        """
        stop_if_read(None)
        outputs: list[CrewOutput] = engine_of("crews").kickoff_for_each(self, inputs)
        return outputs

    async def kickoff_for_each_async(self, inputs: Sequence[dict[str, Any]]) -> "list[CrewOutput] | Any":
        """`kickoff_for_each` with all kickoffs concurrent; with ``stream``, one stream of all of them."""
        stop_if_read(None)
        if self.stream and not nested_kickoffs.is_begun():
            return engine_of("streams").of_crew_async(partial(self.kickoff_for_each_async, inputs))
        return await engine_of("crews").kickoff_for_each_async(self, inputs)

    akickoff_for_each = kickoff_for_each_async

    def replay(self, task_id: str | UUID, inputs: dict[str, Any] | None = None) -> CrewOutput:
        """Run a task of the last kickoff again, by its id or name, and those after it; earlier outputs are kept.

        Raises `ValueError` if the crew has no such task, or an earlier one has no output yet.
        """
        output: CrewOutput = engine_of("crews").replay(self, task_id, inputs)
        return output

    @classmethod
    def from_checkpoint(cls, config: CheckpointConfig, **code: Any) -> Self:
        """Return the crew of the checkpoint that ``config.restore_from`` names; its ``kickoff`` resumes from there.

        Its code comes from the living crew of this class with the same tasks. The other fields of ``config`` say how it
        writes its own checkpoints.
        """
        engine = engine_of("crews")
        restored: Self = engine.restore(cls, config, **code)
        return restored

    @classmethod
    def fork(cls, config: CheckpointConfig, branch: str | None = None) -> Self:
        """`from_checkpoint` on a new branch, so that the original branch can continue as well."""
        engine = engine_of("crews")
        forked: Self = engine.restore(cls, config, fork=True, branch=branch)
        return forked


def _given(input_files: Any, from_checkpoint: Any) -> dict[str, Any]:
    """The arguments of a kickoff that were given."""
    given = {"input_files": input_files, "from_checkpoint": from_checkpoint}
    return {name: value for name, value in given.items() if value is not None}


def output_of(crew: Crew, done: Mapping[str, TaskOutput], last: str, usage: UsageMetrics) -> CrewOutput:
    """Return the output of a kickoff that used these tokens: that of its ``last`` task, with those of all."""
    crew.usage_metrics = usage
    final = done[last]
    return CrewOutput(
        raw=final.raw,
        json_dict=final.json_dict,
        pydantic=final.pydantic,
        token_usage=usage,
        tasks_output=[done[key] for key, task in crew.by_key.items() if key in done and task is not crew.planner],
    )
