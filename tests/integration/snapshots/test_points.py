"""Where the real CrewAI fails today, one test for each failure. Their numbers are those of our study of it."""

import json
import random
import string
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from runner import Agent, BaseLLM, CheckpointConfig, ConditionalTask, Crew, Process, Task
from runner.core.errors import BadCrew
from runner.providers import SqliteProvider, detect_provider

KEY = "sk-live-4eC39HqLyjWDarjtT1zdp7dc"


def done(text: str) -> Any:
    return lambda ctx: text


class Model(BaseLLM):
    """Answers from a list, and counts what it was paid for."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("of-mine", temperature=0.5, api_key=KEY, base_url=f"https://user:{KEY}@models.example")
        self.headers = {"Authorization": KEY}
        self.answers, self.asked = list(answers), []

    def call(self, messages: Any, tools: Any = None, callbacks: Any = None, **_: Any) -> Any:
        self.asked.append(messages)
        answer = self.answers.pop(0) if self.answers else f"Final Answer: {len(self.asked)}"
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- 3: what was paid for inside a task


def test_point_3_a_resume_pays_nothing_again_inside_a_task(place):
    """Five steps, dead after the second: the resume does three."""
    paid: list[int] = []

    def made(dies_after: int | None) -> Crew:
        def work(ctx: Any) -> str:
            def pay(i: int) -> int:
                if dies_after is not None and i >= dies_after:
                    raise KeyboardInterrupt  # nothing of the task is caught or ended by it
                paid.append(i)
                return i * 10

            return str(sum(ctx.step("pay", pay, i) for i in range(5)))

        return Crew(tasks=[Task(name="buy", run=work)])

    config = CheckpointConfig(location=place.location, on_events=["tool_usage_finished"])
    with pytest.raises(KeyboardInterrupt):
        made(2).kickoff(from_checkpoint=config)
    assert paid == [0, 1]
    result = made(None).kickoff(from_checkpoint=config.model_copy(update={"restore_from": place.location}))
    assert paid == [0, 1, 2, 3, 4]
    assert result.raw == "100"


def test_point_3_answers_of_a_model_are_not_paid_again(place):
    """A guardrail has the agent asked three times; dead before the third, two answers are not paid again."""
    verdicts = iter([(False, "too short"), (False, "still too short"), (True, None)])

    def made(model: Model) -> Crew:
        writer = Agent(role="writer", llm=model)
        task = Task(name="write", description="Write.", agent=writer, guardrail=lambda output: next(verdicts))
        return Crew(tasks=[task])

    config = CheckpointConfig(location=place.location, on_events=["llm_call_completed"])
    first = Model("one", "one two", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        made(first).kickoff(from_checkpoint=config)
    assert len(first.asked) == 3
    verdicts = iter([(False, "still too short"), (True, None)])
    second = Model("one two three")
    restored = config.model_copy(update={"restore_from": place.location})
    assert made(second).kickoff(from_checkpoint=restored).raw == "one two three"
    [asked] = second.asked
    assert [m["content"] for m in asked if m["role"] == "assistant"] == ["one", "one two"]
    assert "still too short" in asked[-1]["content"]


# -- 4: lost checkpoints


@pytest.mark.parametrize("side_by_side", [False, True])
def test_point_4_a_hundred_fast_tasks_leave_a_hundred_checkpoints(place, side_by_side):
    tasks = [Task(name=f"t{i}", run=done(str(i)), async_execution=side_by_side) for i in range(100)]
    Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location)).kickoff()
    all_ = place.all
    assert len(all_) == 100
    finished = [{t["key"] for t in data["entities"][0]["tasks"] if t["output"]} for data in all_]
    assert [len(keys) for keys in finished] == list(range(1, 101)), "each one task further than the one before"
    assert all(before < after for before, after in pairwise(finished))
    parents = [data["parent_id"] for data in all_]
    assert parents == [None, *(info.id for info in place.infos[:-1])], "each the child of the one before"
    for data, keys in zip(all_, finished, strict=True):
        types = [(n["event"]["type"], n["event"].get("task_name")) for n in data["event_record"]["nodes"].values()]
        assert {name for kind, name in types if kind == "task_completed"} == keys, "outputs and events of one moment"
        assert data["trigger"] == "task_completed"


# -- 5: a function as a tool


def test_point_5_a_crew_with_functions_everywhere_writes_checkpoints_and_comes_back(place):
    bought: list[str] = []
    names = {"prefix": "found"}  # in the closure of what follows

    class Price(BaseModel):
        """Known to this function only."""

        amount: float

    def search(query: str) -> str:
        """A tool."""
        return f"{names['prefix']} {query}"

    def made(*, dies: bool) -> Crew:
        agent = Agent(role="buyer", tools=[search, lambda x: x, str.upper], llm=Model())

        def buy(ctx: Any) -> str:
            if dies:
                raise RuntimeError("dead")
            return ctx.step("search", agent.tools[0], ctx.outputs["price"].pydantic.amount)

        return Crew(
            agents=[agent],
            tasks=[
                Task(name="price", run=lambda ctx: {"amount": 9.5}, output_pydantic=Price, agent=agent,
                     callback=lambda output: bought.append(output.raw), guardrail=lambda output: (True, output)),
                Task(name="buy", run=buy, agent=agent, tools=[search]),
            ],
            before_kickoff_callbacks=[lambda inputs: {**inputs, "seen": True}],
            after_kickoff_callbacks=[lambda result: None],
            task_callback=lambda output: None,
            checkpoint=CheckpointConfig(location=place.location),
        )  # fmt: skip

    with pytest.raises(RuntimeError, match="dead"):
        made(dies=True).kickoff()
    assert len(place.infos) == 1
    result = made(dies=False).kickoff(from_checkpoint=CheckpointConfig(restore_from=place.at(-1)))
    assert result.raw == "found 9.5"
    assert result.tasks_output[0].pydantic == Price(amount=9.5)
    assert bought == ['{"amount": 9.5}'], "not called again"


def test_point_5_tools_of_a_class_of_ones_own_come_back_as_themselves(place):
    class Tool:
        name = "search"

    class Better(Tool):
        def _run(self) -> str:
            return "better"

    agent = Agent(role="r", tools=[Better()], llm=Model())
    crew = Crew(
        agents=[agent], tasks=[Task(name="a", run=done("x"))], checkpoint=CheckpointConfig(location=place.location)
    )
    crew.kickoff()
    assert place.last["entities"][0]["agents"][0]["tools"] == ["search"]
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=place.at(-1)))
    assert restored is not crew
    assert type(restored.agents[0].tools[0]) is Better
    assert restored.agents[0].llm is agent.llm


# -- 7: bytes


@pytest.mark.parametrize("sqlite", [False, True])
def test_point_7_a_checkpoint_costs_what_the_run_has_and_no_more(place, database, sqlite):
    """Task n's checkpoint is n times a constant, with the default context too: not quadratic, not cubic."""
    where = database if sqlite else place
    provider = {"provider": SqliteProvider()} if sqlite else {}

    def work(ctx: Any) -> str:
        assert len(ctx.context) == int(ctx.task.name)  # it reads all that went before
        return "x" * 1000

    tasks = [Task(name=str(i), description="Go on.", run=work) for i in range(60)]
    Crew(tasks=tasks, checkpoint=CheckpointConfig(location=where.location, **provider)).kickoff()
    sizes = [info.size for info in where.infos]
    growth = [after - before for before, after in pairwise(sizes)]
    assert max(growth) - min(growth) < 200, "the 60th adds what the 2nd added"
    assert max(growth) < 3500


@pytest.mark.parametrize("by_agents", [False, True])
def test_point_7_a_hundred_tasks_in_redis_cost_less_than_one_and_a_half_times_their_outputs(redis, server, by_agents):
    """1 KB each, all of them read by each: a state is stored as what is new in it."""
    chance = random.Random(7)
    vocabulary = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(2000)]

    def say() -> str:
        return " ".join(chance.choices(vocabulary, k=200))[:1024]

    class Writes(Model):
        def call(self, messages: Any, tools: Any = None, callbacks: Any = None, **_: Any) -> str:
            return say()

    def work(ctx: Any) -> str:
        assert len(ctx.context) == int(ctx.task.name)
        return say()

    by = {"agent": Agent(role="writer", llm=Writes())} if by_agents else {"run": work}
    tasks = [Task(name=str(i), description="Go on.", **by) for i in range(100)]
    location = f"{server.url}?prefix=p"
    Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location)).kickoff()
    assert len(detect_provider(location).checkpoints(location)) == 100
    assert sum(redis.memory_usage(key, samples=0) for key in redis.scan_iter("*")) < 1.5 * 100 * 1024
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=location))
    assert [task.output.raw for task in restored.tasks] == [task.output.raw for task in tasks]


def test_point_7_an_agents_conversation_is_in_it_while_it_lasts(place):
    agent = Agent(role="writer", llm=Model())
    tasks = [Task(name=f"t{i}", description="Write.", agent=agent) for i in range(8)]
    events: Any = ["llm_call_completed", "task_completed"]
    Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location, on_events=events)).kickoff()
    for data in place.all:
        talking = [t["key"] for t in data["entities"][0]["tasks"] if t.get("messages")]
        assert len(talking) == (1 if data["trigger"] == "llm_call_completed" else 0)


# -- 8: what a restore loses


def test_point_8_guardrails_callbacks_and_conditions_come_back(place):
    said: list[str] = []

    def made(*, dies: bool) -> Crew:
        def last(ctx: Any) -> str:
            if dies:
                raise RuntimeError("dead")
            return "bad" if ctx.feedback is None else f"good, for {ctx.feedback}"

        return Crew(
            tasks=[
                Task(name="first", run=done("first")),
                ConditionalTask(name="never", run=lambda ctx: said.append("never ran"), condition=lambda output: False),
                Task(name="after", run=lambda ctx: f"after {ctx.outputs['never'].raw!r}",
                     callback=lambda o: said.append(o.raw)),
                Task(name="last", run=last, guardrail=lambda o: (True, o) if "good" in o.raw else (False, "it was bad"),
                     callback=lambda o: said.append(o.raw)),
            ],
            task_callback=lambda output: said.append(f"did {output.name}"),
            after_kickoff_callbacks=[lambda result: said.append("over")],
            checkpoint=CheckpointConfig(location=place.location),
        )  # fmt: skip

    with pytest.raises(RuntimeError, match="dead"):
        made(dies=True).kickoff()
    assert said == ["did first", "after ''", "did after"], "the skipped task has no callback"
    said.clear()
    crew = made(dies=False)
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=place.at(-1)))
    assert isinstance(restored.tasks[1], ConditionalTask)
    assert restored.kickoff().raw == "good, for it was bad"
    assert said == ["good, for it was bad", "did last", "over"], "nothing that was done is done again"
    assert crew.tasks[0].output is None, "the living crew is not the restored one"
    skipped = place.last["entities"][0]["tasks"][1]
    assert skipped["output"] == {"raw": "", "skipped": True}


def test_point_8_a_skipped_task_stays_skipped_whatever_its_condition_says_now(place):
    verdict = [False]
    ran = []

    def made() -> Crew:
        return Crew(
            tasks=[
                Task(name="a", run=done("a")),
                ConditionalTask(name="b", run=lambda ctx: ran.append(1), condition=lambda output: verdict[0]),
                Task(name="c", run=done("c")),
            ],
            checkpoint=CheckpointConfig(location=place.location),
        )

    crew = made()
    crew.kickoff()
    verdict[0] = True
    assert crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=place.at(1))).raw == "c"
    assert ran == []


def test_point_8_no_key_of_a_model_is_in_any_stored_byte(place, database):
    for where, provider in ((place, {}), (database, {"provider": SqliteProvider()})):
        refusal = RuntimeError(f"401: the key {KEY} is not known")
        agents = [Agent(role="good", llm=Model()), Agent(role="bad", llm=Model(refusal))]
        tasks = [Task(name=a.role, description="Go.", agent=a) for a in agents]
        settings = CheckpointConfig(location=where.location, on_events=["*"], **provider)
        with pytest.raises(RuntimeError):
            Crew(tasks=tasks, agents=agents, checkpoint=settings).kickoff()
        lone = Agent(role="lone", llm=Model(refusal), checkpoint=settings)
        with pytest.raises(RuntimeError):
            lone.kickoff("hello")
        assert len(where.infos) > 10
        assert "***" in json.dumps(where.all), "the refusal is in it, the key is not"
    files = [file for file in Path(place.location).parent.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file
        assert b"models.example" not in file.read_bytes(), file


def test_point_8_a_hierarchical_crew_is_refused_in_words():
    crew = Crew(tasks=[Task(run=done("x"))], process=Process.hierarchical)
    with pytest.raises(BadCrew, match=r"^Process\.hierarchical needs a manager: give the crew manager_llm="):
        crew.kickoff()


# -- 9: a resume that runs nothing


def test_point_9_a_resume_of_a_crew_that_is_two_thirds_done_runs_the_third(program, place):
    code = """
    import os, sys
    from runner import CheckpointConfig, Crew, Task

    def third(ctx):
        if len(sys.argv) > 2:
            os._exit(3)
        return "third after " + ", ".join(o.raw for o in ctx.context)

    def work(ctx):
        print("ran", ctx.task.name, flush=True)
        return ctx.task.name

    crew = Crew(tasks=[Task(name="first", run=work), Task(name="second", run=work), Task(name="third", run=third)])
    restore = None if len(sys.argv) > 2 else sys.argv[1]
    config = CheckpointConfig(location=sys.argv[1], restore_from=restore)
    print("Result:", crew.kickoff(from_checkpoint=config))
    """
    assert run(program(code, place.location, "die")) == (3, "ran first\nran second\n")
    assert run(program(code, place.location)) == (0, "Result: third after first, second\n")
    assert len(place.infos) == 3, "the resumed run goes on writing where it was"


def run(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said, complaints = process.communicate(timeout=60)
    assert "Traceback" not in complaints, complaints
    return process.returncode, said
