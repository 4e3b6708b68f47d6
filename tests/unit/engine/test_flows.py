"""Flows on the executor: plans that grow, what their tasks share, and a person's answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.core.states import RunStatus
from runner.engine.decisions import Ask, Commit, Grown, Retry
from runner.journal.human_answers import Answer
from runner.testing.in_process import InProcess

LOOP = """
    class Counts(Flow[dict]):
        @start()
        def begin(self):
            self.state["n"] = self.state.get("n", 0)
            return "go"

        @router(or_(begin, "again"))
        def look(self):
            self.state["n"] += 1
            trace(f"look {self.state['n']}")
            return "again" if self.state["n"] < 3 else "enough"

        @listen("enough")
        def end(self):
            return {"n": self.state["n"]}
    """

ASKS = """
    class Asks(Flow[dict]):
        @start()
        def draft(self):
            self.step("write", trace, "write")
            colour = self.pause("Which colour?")
            return f"a {colour} draft"

        @start()
        def beside(self):
            trace("beside")

        @listen(draft)
        def publish(self, text):
            trace(f"publish {text}")
            return text
    """

INSIDE = """
    class Own(BaseLLM):
        def call(self, messages, tools=None, **options):
            trace("asked")
            return "said"

    class F(Flow[dict]):
        @start()
        def first(self):
            return self.step("first", trace, "first") or {object()}  # no JSON, and need not be

        @listen(first)
        async def second(self, things):
            task = Task(name="t", description="it", agent=Agent(role="A", llm=Own("own")), human_input=True)
            return f"{len(things)} {(await Crew(tasks=[task]).kickoff_async()).raw}"

    class All(Flow):
        @start(max_retries=1, retry_delay=0.0)
        async def all(self):
            return await F().kickoff_async()

    def run(ctx):
        text = All().kickoff()
        ctx.step("end", trace, "end")
        if ctx.attempt == 2:
            raise OSError("once")
        return text

    crew = Crew(tasks=[Task(name="work", run=run, max_retries=1, retry_delay=0.0)])
    """


def test_what_flows_inside_of_a_task_do_is_recorded_with_the_task(
    here: InProcess, crew_of: Callable[[str], Path], done: Any
) -> None:
    """A crew in a flow in a flow asks a person: the task waits; then it fails and is tried again. No step is twice."""
    run = here.submit(f"{crew_of(INSIDE)}:crew")
    assert [type(decision) for _, decision in here.work()] == [Ask]
    (question,) = here.runs.questions(run, "main")
    assert here.runs.answer(run, "main", question, Answer("").dump()) == "answered"
    assert [type(decision) for _, decision in here.work()] == [Retry, Commit]
    assert here.texts(run)["work"] == "1 said"
    assert done() == ["first", "asked", "end"]


def test_a_flow_grows_until_its_router_says_enough(here: InProcess, begun: Callable[..., str], done: Any) -> None:
    run = begun(LOOP)
    decisions = [decision for _, decision in here.work()]
    assert {type(decision) for decision in decisions} == {Grown}
    assert here.runs.get(run).status is RunStatus.completed
    assert done() == ["look 1", "look 2", "look 3"]
    assert here.store.branch(run, "main").history()[-1].key == "end"


def test_a_flow_waits_for_a_person_and_goes_on_with_the_answer(
    here: InProcess, begun: Callable[..., str], done: Any
) -> None:
    run = begun(ASKS)
    decisions = {job.task: type(decision) for job, decision in here.work()}
    assert decisions == {"draft": Ask, "beside": Grown}
    assert here.runs.get(run).status is RunStatus.waiting
    (question,) = here.runs.questions(run, "main")
    assert question.message == "Which colour?"
    assert here.runs.answer(run, "main", question, Answer("blue").dump()) == "answered"
    here.work()
    assert here.runs.get(run).status is RunStatus.completed
    assert sorted(done()) == ["beside", "publish a blue draft", "write"]
    assert here.runs.get(run).paid == 1


BOTH = """
    class Both(Flow[dict]):
        @start()
        def one(self):
            self.state["one"] = 1

        @start()
        def two(self):
            self.state["two"] = 2

        @listen(and_(one, two))
        def end(self):
            return dict(self.state)
    """


def test_two_methods_that_change_the_state_side_by_side_both_count(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun(BOTH)
    here.work()
    assert here.runs.get(run).status is RunStatus.completed
    found = here.runs.committed(run, "main")["end"].json
    assert (found["one"], found["two"]) == (1, 2)


def test_a_loop_without_end_fails_its_run(here: InProcess, begun: Callable[..., str], done: Any) -> None:
    run = begun(LOOP.replace("< 3", "< 10**9") + "\n    crew = Counts(max_method_calls=3)\n")
    here.work(most=20)
    assert here.runs.get(run).status is RunStatus.failed
    assert "max_method_calls" in here.runs.get(run).error
    assert len(done()) < 10


def test_a_flow_inside_of_a_task_keeps_nothing_on_the_workers_machine(
    here: InProcess, begun: Callable[..., str], done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path / "state"))
    run = begun("""
        from runner.flows import HumanFeedbackPending, human_feedback

        class Elsewhere:
            def request_feedback(self, context, flow):
                raise HumanFeedbackPending(context)

        def kick_off(ctx):
            class Inner(Flow[dict]):
                @start()
                @human_feedback("Good?", provider=Elsewhere())
                def draft(self):
                    return 1

            trace(type(Inner().kickoff()).__name__)
            return "kicked off"

        crew = Crew(tasks=[Task(name="outer", run=kick_off)])
        """)
    here.work()
    assert here.runs.get(run).status is RunStatus.completed
    assert done() == ["HumanFeedbackPending"]
    assert not (tmp_path / "state").exists()
