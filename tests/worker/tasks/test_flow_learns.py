"""Flows on real workers that learn of what people say: no lesson is paid for or remembered twice, whoever dies."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

LEARNS = """
    import os
    from runner.flows import Memory

    class Learns(Flow):
        @start()
        @human_feedback("What of it?", learn=True, llm="openai/gpt-4o-mini")
        def draft(self):
            trace("method draft")
            return "a text"

        @listen(draft)
        @human_feedback("And now?", emit=["yes", "no"], learn=True, llm="openai/gpt-4o-mini")
        def again(self, said):
            trace("method again")
            return said.output + ", again"

        @listen("yes")
        def end(self, said):
            self.remember("The person is content.")
            return {
                "shown": said.output,
                "lessons": [one.record.content for one in self.recall("", source="hitl")],
                "files": len(list((self.workdir / ".memory" / "Learns").iterdir())),
            }
"""
DIES = """
    class Dies(Memory):
        def remember_many(self, contents, **about):
            found = super().remember_many(contents, **about)
            if not os.path.exists(FLAG):
                open(FLAG, "w").close()
                os.kill(os.getpid(), 9)
            return found

    class Dying(Learns):
        name = "Learns"

        @property
        def memory(self):
            return Dies(self.workdir / ".memory" / "Learns")

    flow = Dying
"""


def _script(request: Any) -> str:
    if "improved_output" in request.text:
        assert "- Write shorter sentences." in request.last
        return json.dumps({"improved_output": "better"})
    assert "longer than it should be" in request.last
    return json.dumps({"lessons": ["Write shorter sentences.", " "]})


@pytest.mark.parametrize(
    ("point", "pool", "paid_again", "in_doubt"),
    [
        ("model call sent, not answered", "prefork", 1, 1),
        ("model answered, not recorded", "threads", 1, 1),
        ("step done, not recorded", "prefork", 0, 0),  # the model's answer is recorded, the lessons are not
        ("step recorded, task not ended", "threads", 0, 0),  # the lessons are, and not yet remembered
        ("remembered, not recorded", "prefork", 0, 1),  # of the step that remembers; it leaves nothing twice
        ("task done, not committed", "prefork", 0, 0),
    ],
)
def test_a_kill_around_what_is_learnt_pays_for_nothing_twice(
    point: str,
    pool: str,
    paid_again: int,
    in_doubt: int,
    fleet: Any,
    client: Client,
    flow_of: Any,
    trace: Any,
    tmp_path: Path,
) -> None:
    flag = tmp_path / "died"
    of_memory = point == "remembered, not recorded"
    with ModelServer(_script) as models:
        # Given a run that waits for a person's word
        first = fleet.start("--concurrency", "1", "--pool", pool, **models.environment)
        file = flow_of(LEARNS + (DIES.replace("FLAG", repr(str(flag))) if of_memory else ""))
        handle = client.submit(f"{file}:{'flow' if of_memory else 'Learns'}")
        assert handle.wait(60).status == "waiting"
        first.terminate()
        # When a worker dies in the middle of learning of it
        crash = {} if of_memory else {"RUNNER_CRASH_AT": f"{point}:{flag}"}
        fleet.start("--concurrency", "1", "--pool", pool, **models.environment, **crash)
        answered = fleet.runner("answer", handle.id, "--text", "It is longer than it should be.", "--json")
        assert answered.returncode == 5, answered.stderr
        assert flag.exists()
        # Then the next output is shown with the lesson applied
        (question,) = client.store.runs.questions(handle.id, "main")
        assert (question.task, question.about["method_output"]) == ("again", "better")
        result = client.answer(handle.id, "yes").wait(60)
    assert result.status == "completed", result
    # And what was learnt is remembered once, beside what the flow itself remembers
    assert json.loads(result.result) == {"shown": "better", "lessons": ["Write shorter sentences."], "files": 2}
    # And only what was in flight was paid again
    assert (models.paid, result.ledger["in_doubt"]) == (2 + paid_again, in_doubt)
    assert trace.lines() == ["method draft", "method again"]
