"""A person's word on what a task gave, in this process."""

import threading
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from runner import Agent, BaseLLM, CheckpointConfig, Crew, Process, Task
from runner.core.errors import BadInput, TaskError
from runner.flows.feedback import verdict

TERMINAL = "runner.crews.human_review._on_terminal"


class Writes(BaseLLM):
    """Says how often it was asked, and the last thing that it was told."""

    def __init__(self) -> None:
        super().__init__(model="writes")
        self.heard: list[str] = []

    def call(self, messages: Any, tools: Any = None, **more: Any) -> str:
        self.heard.append(messages[-1]["content"])
        return f"draft {len(self.heard)}"


def test_an_agent_answers_again_until_a_person_takes_it():
    llm = Writes()
    crew = Crew(tasks=[Task(name="t", description="Write.", agent=Agent(role="writer", llm=llm), human_input=True)])
    with patch(TERMINAL, side_effect=["shorter", "kinder", ""]) as asked:
        assert crew.kickoff().raw == "draft 3"
    assert [call.args[0].partition("\n")[0] for call in asked.call_args_list] == [f"t: draft {n}" for n in (1, 2, 3)]
    assert [("shorter" in one, "kinder" in one) for one in llm.heard] == [(False, False), (True, False), (False, True)]


def test_a_function_sees_what_the_person_said_and_guardrails_hold_for_each_answer():
    done = Counter[str]()

    def write(ctx):
        text = ctx.step("draft", lambda: f"draft {done.update(draft=1) or done['draft']}")
        return f"{text} {ctx.feedback or ''}".strip()

    def not_the_first(output):
        return (False, "another") if output.raw == "draft 1" else (True, output)

    crew = Crew(tasks=[Task(name="t", run=write, human_input=True, guardrail=not_the_first)])
    with patch(TERMINAL, side_effect=["shorter", " "]) as asked:
        assert crew.kickoff().raw == "draft 3 shorter"
    assert asked.call_args_list[0].args[0].startswith("t: draft 2 another")


def test_without_a_terminal_the_task_says_what_to_do():
    crew = Crew(tasks=[Task(name="t", run=lambda ctx: "text", human_input=True)])
    with pytest.raises(TaskError, match="there is no terminal here: `runner submit` keeps such a run"):
        crew.kickoff()


def test_what_was_paid_for_before_the_question_is_in_the_checkpoint(tmp_path):
    llm, place = Writes(), str(tmp_path)
    config = CheckpointConfig(location=place, on_events=["agent_execution_completed"])

    def crew():
        agent = Agent(role="writer", llm=llm)
        return Crew(tasks=[Task(name="t", description="Write.", agent=agent, human_input=True)], checkpoint=config)

    first = crew()
    with patch(TERMINAL, side_effect=["shorter", KeyboardInterrupt]), pytest.raises(KeyboardInterrupt):
        first.kickoff()
    with patch(TERMINAL, return_value="") as asked:
        result = crew().kickoff(from_checkpoint=CheckpointConfig(restore_from=place))
    assert (result.raw, len(llm.heard)) == ("draft 2", 2)
    assert asked.call_args.args[0].startswith("t: draft 2")


def test_a_timeout_does_not_count_the_time_that_a_person_takes():
    asked, answered = threading.Event(), threading.Event()

    def slow(*_: Any) -> str:
        asked.set()
        answered.wait(0.3)  # more than the timeout
        return ""

    crew = Crew(tasks=[Task(name="t", run=lambda ctx: "text", human_input=True, timeout=0.1)])
    with patch(TERMINAL, side_effect=slow):
        assert crew.kickoff().raw == "text"
    assert asked.is_set()


def test_one_task_asks_while_another_goes_on():
    beside = threading.Event()
    crew = Crew(
        process=Process.graph,
        tasks=[
            Task(name="asks", run=lambda ctx: "text", human_input=True, context=[]),
            Task(name="beside", run=lambda ctx: beside.set(), context=[]),
        ],
    )
    with patch(TERMINAL, side_effect=lambda *_: "" if beside.wait(10) else "never"):
        assert crew.kickoff().tasks_output[0].raw == "text"


SHOWN = {"method_output": "x", "message": "Good?"}


@pytest.mark.parametrize(
    ("text", "approve", "reject", "labels", "said"),
    [
        ("words", False, None, [], "words"),
        (None, True, None, [], ""),
        (None, False, "too long", [], "too long"),
        (None, True, None, ["approved", "rejected"], "approved"),
        (None, False, "too long", ["yes", "no"], "no: too long"),
    ],
)
def test_an_answer_in_words(text, approve, reject, labels, said):
    assert verdict(text, approve, reject, labels, SHOWN) == said


@pytest.mark.parametrize(
    ("text", "approve", "reject", "labels", "about", "why"),
    [
        (None, False, None, [], SHOWN, "exactly one of"),
        ("a", True, None, [], SHOWN, "exactly one of"),
        (None, False, " ", [], SHOWN, "--reject needs a reason"),
        (
            None,
            True,
            None,
            ["blue", "red"],
            SHOWN,
            "none of blue, red is known to mean 'approves': choose one with --text",
        ),
        (None, True, None, [], {"message": "Which?"}, "nothing is shown that could be approved"),
    ],
)
def test_an_answer_that_is_none(text, approve, reject, labels, about, why):
    with pytest.raises(BadInput, match=why):
        verdict(text, approve, reject, labels, about)
