"""Flows on real workers that wait for a person: nothing is done again for an answer, whoever dies meanwhile."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.client.checkpoints.fleet import RunSource
from runner.client.checkpoints.model import find
from runner.core.errors import BadInput, Conflict

ASKS = """
    class Asks(Flow[dict]):
        @start()
        @human_feedback("Good?", emit=["yes", "no"])
        def draft(self):
            trace("method draft")
            self.state["drafts"] = self.state.get("drafts", 0) + 1
            return {"title": "T"}

        @start()
        def beside(self):
            trace("method beside")
            self.state["beside"] = True

        @listen("yes")
        def publish(self, said):
            colour = self.pause("Which colour?")
            return {"said": said.feedback, "output": said.output, "colour": colour, **self.state}

        @listen("no")
        def discard(self):
            return {"discarded": True}
    """


def test_a_flow_waits_for_a_person_and_goes_on_with_the_answer(
    fleet: Any, client: Client, flow_of: Any, trace: Any, well_told: Callable[..., Any]
) -> None:
    fleet.start("--concurrency", "2")
    handle = client.submit(flow_of(ASKS))
    waiting = handle.wait(60)
    assert (waiting.status, int(waiting.exit_code)) == ("waiting", 5)
    (question,) = client.store.runs.questions(handle.id, "main")
    assert (question.task, question.message, question.labels) == ("draft", "Good?", ["yes", "no"])
    assert question.about["method_output"] == {"title": "T"}
    with pytest.raises(BadInput, match="'perhaps' is not one of yes, no"):
        client.answer(handle.id, "perhaps")
    with pytest.raises(Conflict, match=r"is awaiting input: `runner answer"):
        client.resume(handle.id)
    with pytest.raises(Conflict, match="is not awaiting an answer of task 'publish'"):
        client.answer(handle.id, "yes", task="publish")
    second = client.answer(handle.id, "Yes", task="draft").wait(60)
    assert second.status == "waiting"
    result = client.answer(handle.id, "blue").wait(60)
    assert result.status == "completed", result
    found = json.loads(result.result)
    assert {name: found[name] for name in ("said", "output", "colour", "drafts", "beside")} == {
        "said": "Yes", "output": {"title": "T"}, "colour": "blue", "drafts": 1, "beside": True,
    }  # fmt: skip
    assert Counter(trace.lines()) == {"method draft": 1, "method beside": 1}
    well_told(handle)


@pytest.mark.parametrize("point", ["question put, not asked", "task done, not committed", "claimed, not begun"])
def test_a_worker_dies_around_a_question(
    point: str, fleet: Any, client: Client, flow_of: Any, trace: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", RUNNER_CRASH_AT=f"{point}:{flag}")
    handle = client.submit(flow_of(ASKS))
    assert handle.wait(60).status == "waiting"
    assert client.answer(handle.id, "no").wait(60).status == "completed"
    assert flag.exists()
    assert trace.lines().count("method draft") == 1


def test_a_waiting_run_is_cancelled_and_another_one_is_not_kept_from_running(
    fleet: Any, client: Client, flow_of: Any, redis: Any
) -> None:
    fleet.start("--concurrency", "2")
    handle = client.submit(flow_of(ASKS))
    assert handle.wait(60).status == "waiting"
    assert all(redis.ttl(key) == -1 for key in redis.scan_iter(f"*:run:{handle.id}*"))  # what waits stays
    handle.cancel()
    assert handle.status == "cancelled"
    assert all(redis.ttl(key) > 0 for key in redis.scan_iter(f"*:run:{handle.id}*"))
    with pytest.raises(Conflict, match="is cancelled"):
        client.answer(handle.id, "yes")


SAYS = """
    class Says(Flow[dict]):
        @start()
        @human_feedback("Send it?", emit=["send", "keep"])
        def draft(self):
            return {"title": "T"}

        @listen("send")
        @human_feedback("How is it?")
        def sent(self, said):
            return f"sent {said.output['title']}: {said.feedback}"

        @listen("keep")
        def kept(self, said):
            return {"kept": said.output, "as": said.outcome, "word": said.feedback}

        @listen(draft)
        def by_name(self, outcome):
            return outcome

        @listen(sent)
        def told(self, said):
            return {"output": said.output, "word": said.feedback, "last": self.last_human_feedback.output}
    """


def test_a_fork_edits_what_a_person_chose_or_what_they_said_it_of(fleet: Any, client: Client, flow_of: Any) -> None:
    fleet.start("--concurrency", "2")
    handle = client.submit(flow_of(SAYS))
    assert handle.wait(60).status == "waiting"
    assert client.answer(handle.id, "send").wait(60).status == "waiting"
    assert client.answer(handle.id, "well").wait(60).status == "completed"

    source = RunSource(client, handle.id)
    shown = {task.key: task.to_edit for task in source.details(find(source, None)).tasks}
    assert (shown["draft"], shown["sent"]) == ("send", "sent T: send"), "what the browser gives to be edited"

    words = fleet.runner("fork", handle.id, "--edit", "sent=nothing was sent", "--json")
    assert json.loads(json.loads(words.stdout)["result"]) == {
        "output": "nothing was sent", "word": "well", "last": "nothing was sent",
    }, words.stderr  # fmt: skip

    bad = fleet.runner("fork", handle.id, "--edit", "draft=a better draft")
    assert bad.returncode == 2
    assert bad.stderr.splitlines()[0].endswith("'a better draft' is not one of send, keep: edit it to one of them")

    other = client.fork(handle.id, edits={"draft": "Keep"})
    found = other.wait(60)
    assert found.status == "completed", found
    assert json.loads(found.outputs["kept"]) == {"kept": {"title": "T"}, "as": "keep", "word": "keep"}
    assert found.outputs["by_name"] == "keep"
    assert "sent" not in found.outputs
    diff = fleet.runner("diff", handle.id, "main", other.branch)
    assert {"--> send", "+-> keep"} <= {line.strip() for line in diff.stdout.splitlines()}, diff.stdout
    back = client.fork(handle.id, source=other.branch, edits={"draft": "send"}).wait(60)
    assert [one.message for one in back.asked] == ["How is it?"], "it is asked again, of the branch's own"


def test_a_flow_on_the_command_line(fleet: Any, flow_of: Any) -> None:
    fleet.start("--concurrency", "2")
    path = flow_of(ASKS)
    submitted = fleet.runner("submit", str(path), "--json")
    assert submitted.returncode == 5, submitted.stderr
    run_id = json.loads(submitted.stdout)["run_id"]
    asked = fleet.runner("answer", run_id)
    assert (asked.returncode, asked.stdout) == (5, 'draft: Good? (yes, no)\n{\n  "title": "T"\n}\n')
    wrong = fleet.runner("answer", run_id, "--text", "perhaps")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    answered = fleet.runner("answer", run_id, "--text", "no", "--json")
    assert answered.returncode == 0, answered.stderr
    assert json.loads(json.loads(answered.stdout)["result"]) == {"discarded": True}
    shown = json.loads(fleet.runner("show", run_id, "--json").stdout)
    assert [row["task"] for row in shown["tasks"]] == list(shown["outputs"])
    assert fleet.runner("answer", run_id, "--text", "no").returncode == 2


DECIDES = """
    from runner import BaseLLM

    class Contrary(BaseLLM):
        def call(self, messages, *rest, **more):
            trace("asked")
            return "approved"

    class Decides(Flow[dict]):
        @start()
        @human_feedback("Good?", emit=["approved", "rejected"], llm=Contrary("contrary"))
        def draft(self):
            return "a draft"

        @listen("rejected")
        def drop(self, said):
            return [said.outcome, said.feedback]
    """


def test_who_names_a_label_has_chosen_it_whatever_a_model_would_say(
    fleet: Any, client: Client, flow_of: Any, trace: Any
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(flow_of(DECIDES))
    assert handle.wait(60).status == "waiting"
    result = client.answer(handle.id, reject="too long").wait(60)
    assert json.loads(result.result) == ["rejected", "rejected: too long"], result
    assert trace.lines() == []
