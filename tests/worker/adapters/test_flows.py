"""Flows of CrewAI on the fleet, as their files have them: each method is a job, and nothing in one is paid twice."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.testing import Call, ModelRequest, ModelServer

FLOW = """
    from typing import Any

    from crewai import Agent, Crew, Task
    from crewai.flow import Flow, and_, human_feedback, listen, or_, persist, router, start
    from crewai.tools import tool
    from pydantic import BaseModel

    def note(text):
        with open({log!r}, "a") as out:
            out.write(text + chr(10))

    @tool
    def look_up(word: str) -> str:
        \"\"\"Looks a word up.\"\"\"
        note("looked up " + word)
        return word + " is a drink"

    def began(inputs):
        note("began")
        return {{**inputs, "topic": inputs["topic"] + " and milk"}}

    def ended(output):
        note("ended " + output.raw)
        return output

    class Seen(BaseModel):
        topic: str

    class Notes(BaseModel):
        kept: Any = None
        topic: str = "nothing"
        parts: list[str] = []
        id_seen: str = ""

    @persist()
    class Writing(Flow[Notes]):
        @start()
        def begin(self):
            self.state.id_seen = self.state.id
            return [Seen(topic=self.state.topic)]

        @listen(begin)
        def left(self, seen):
            self.state.parts.append("left " + seen[0].topic)
            self.state.kept = {{"seen": seen[0]}}

        @listen(begin)
        def right(self):
            self.state.parts.append("right")

        @router(and_(left, right))
        def which(self):
            return "long" if len(self.state.parts) == 2 else "short"

        @listen("short")
        def never(self):
            raise RuntimeError("both sides were there")

        @listen("long")
        def write(self):
            writer = Agent(role="writer", goal="write", backstory="it writes", tools=[look_up])
            task = Task(description="Write about {{topic}}.", expected_output="text", agent=writer,
                        callback=lambda output: note("wrote " + output.raw))
            crew = Crew(agents=[writer], tasks=[task, Task(description="Again.", expected_output="text", agent=writer)],
                        before_kickoff_callbacks=[began], after_kickoff_callbacks=[ended])
            self.state.kept["written"] = crew.kickoff(inputs={{"topic": self.state.kept["seen"].topic}})
            return self.state.kept["written"]

        @listen(write)
        @human_feedback(message="Is it good?", emit=["approved", "rejected"])
        def review(self, written):
            return written.raw

        @listen("approved")
        def publish(self, said):
            self.state.parts.append(self.state.kept["written"].raw)
            return {{"text": said.output, "word": said.feedback, "of": self.last_human_feedback.outcome,
                    "parts": sorted(self.state.parts), "same": self.state.id == self.state.id_seen}}

        @listen(or_("rejected", never))
        def drop(self, said):
            return {{"text": said.output, "of": said.outcome,
                    "heard": [one.outcome for one in self.human_feedback_history]}}
"""


def _killing(worker: Any) -> Callable[[ModelRequest], Any]:
    """Asks for the tool, and kills the worker when the second task begins; then it answers that, too."""
    killed: list[int] = []

    def answer(request: ModelRequest) -> Any:
        if "outcome" in (request.schema or {}).get("properties", {}):
            return '{"outcome": "approved"}'
        if "Again." not in request.text:
            assert "tea and milk" in request.text
            return "tea" if "tea is a drink" in request.text else Call("look_up", {"word": "tea"})
        if not killed:
            killed.append(request.number)
            worker.kill_group()
        return "done"

    return answer


def test_a_killed_flow_goes_on_in_the_middle_of_a_crew_and_waits_for_a_person(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path
) -> None:
    log, file = tmp_path / "log", tmp_path / "main.py"
    file.write_text(textwrap.dedent(FLOW.format(log=str(log))))
    first = crewai_fleet.start("--concurrency", "1")
    models.use(_killing(first))
    submitted = crewai_fleet.runner("submit", str(file), "--input", "topic=tea", "--detach", "--json")
    run = json.loads(submitted.stdout)["run_id"]
    first.process.wait(timeout=120)
    crewai_fleet.start("--concurrency", "1")
    waited = crewai_fleet.runner("wait", run, "--json")
    assert (waited.returncode, json.loads(waited.stdout)["status"]) == (5, "waiting"), waited.stderr
    answered = crewai_fleet.runner("answer", run, "--text", "Approved", "--json")
    assert answered.returncode == 0, answered.stderr
    told = json.loads(answered.stdout)
    assert json.loads(told["result"]) == {
        "text": "done", "word": "Approved", "of": "approved", "parts": ["done", "left tea", "right"], "same": True
    }  # fmt: skip
    assert log.read_text().splitlines() == ["began", "looked up tea", "wrote tea", "ended done"]  # each once
    ledger = told["ledger"]
    assert (ledger["in_doubt"], ledger["tools"]["paid"]) == (1, 1)
    # One question again; and the last is which label "Approved" means, as CrewAI asks it.
    assert models.paid == 5 == ledger["paid"] + ledger["in_doubt"]
    assert "drop" not in told["outputs"]
    other = crewai_fleet.runner("fork", run, "--edit", "review=Rejected", "--json")
    assert json.loads(json.loads(other.stdout)["result"]) == {"text": "done", "of": "rejected", "heard": ["rejected"]}
    bad = crewai_fleet.runner("fork", run, "--edit", "review=good")
    assert (bad.returncode, "is not one of approved, rejected" in bad.stderr) == (2, True)
    words = crewai_fleet.runner("fork", run, "--edit", "write=coffee", "--branch", "coffee", "--json")
    assert (words.returncode, json.loads(words.stdout)["asked"][0]["method_output"]) == (5, "coffee"), words.stderr
    assert models.paid == 5
