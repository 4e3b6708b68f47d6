"""What handlers in the file of a flow of CrewAI hear of it: on the fleet what they hear where CrewAI alone runs it."""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

FLOW = """
    import os, signal
    from pathlib import Path
    from crewai.events import BaseEventListener, crewai_event_bus
    from crewai.events.types import flow_events
    from crewai.events.types.flow_events import FlowFinishedEvent, FlowStartedEvent
    from crewai.flow import Flow, HumanFeedbackPending, and_, human_feedback, listen, start
    from pydantic import BaseModel

    FOLDER = Path({folder!r})

    def note(*words):
        with (FOLDER / "heard").open("a") as out:
            out.write(" ".join(map(str, words)) + chr(10))

    def hear(kind):
        @crewai_event_bus.on(kind)
        def heard(source, event):
            about = event.model_dump(include={{"method_name", "message", "feedback", "response", "error", "emit"}})
            within = "inside" if event.parent_event_id else "outermost"
            note(type(source).__name__, event.type, event.flow_name, within, *about.values())

    for name in ("FlowCreated", "FlowFailed", "FlowPaused", "MethodExecutionStarted", "MethodExecutionFinished",
                 "MethodExecutionFailed", "MethodExecutionPaused", "HumanFeedbackRequested", "HumanFeedbackReceived",
                 "FlowInputRequested", "FlowInputReceived"):
        hear(getattr(flow_events, name + "Event"))

    class Listener(BaseEventListener):
        def setup_listeners(self, bus):
            @bus.on(FlowStartedEvent)
            def started(source, event): note("started with", *(event.inputs or {{}}).values(), source.state.n)

            @bus.on(FlowFinishedEvent)
            async def finished(source, event): note("gave", event.result.output, event.state["n"], source.state.n)

    listener = Listener()

    class Elsewhere:
        def request_feedback(self, context, flow): raise HumanFeedbackPending(context=context)

    class Counted(BaseModel):
        n: int = 0

    class Counting(Flow[Counted]):
        @start()
        def one(self): self.state.n += 1

        @start()
        def other(self): return "other's"

        @listen(and_(one, other))
        @human_feedback(message="Well?", emit=["yes", "no"], default_outcome="yes")
        def two(self):
            name = self.ask("Who?")
            if not (FOLDER / "died").exists():
                (FOLDER / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            self.state.n += 1
            return name

        @listen("yes")
        @human_feedback(message="Fine?", provider=Elsewhere())
        def last(self, said):
            if not (FOLDER / "allowed").exists():
                raise ValueError("not allowed")
            return said.output + "!"

    def kickoff():
        flow = Counting()
        flow.kickoff(inputs={{"n": 3}})
        Counting.from_pending(flow.flow_id).resume("It is.")

    if __name__ == "__main__":
        kickoff()
"""


@pytest.mark.timeout(300)
def test_handlers_hear_of_one_flow_whatever_dies(
    crewai_fleet: Any,
    run_crewai: Callable[..., Any],
    client: Client,
    write_crew: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUNNER_PRELOAD", "crewai-flow")
    heard, died, allowed = (tmp_path / name for name in ("heard", "died", "allowed"))

    def taken() -> Counter[str]:
        found = heard.read_text().splitlines() if heard.exists() else []
        heard.unlink(missing_ok=True)
        # The handler runs in a thread beside the first method, which adds one to what it looks at.
        return Counter(line.replace("started with 3 4", "started with 3 3") for line in found)

    flow = write_crew(FLOW.format(folder=str(tmp_path)))
    # Given what they hear where CrewAI alone runs it, which starts anew when it is told what it waited for
    died.touch()
    allowed.touch()
    run_crewai(flow, cwd=tmp_path, env=crewai_fleet.environment(), input="Ann\n\n").check_returncode()
    alone = taken()
    assert "gave Ann! 5 5" in alone
    again = ["flow_created Counting outermost", "method_execution_started Counting inside last"]
    alone -= Counter(["started with 5", *(f"Counting {one}" for one in again)])
    # When each method is done in a process of its own, one of which is killed, and the last method fails at first
    died.unlink()
    allowed.unlink()
    crewai_fleet.start("--concurrency", "2")
    waiting = crewai_fleet.runner("submit", f"{flow}:Counting", "--input", "n=3", "--json")
    run = json.loads(waiting.stdout)["run_id"]
    codes = [waiting.returncode, *(crewai_fleet.runner("answer", run, "--text", one).returncode for one in ("Ann", ""))]
    assert (codes, died.exists()) == ([5, 5, 1], True), waiting.stderr
    allowed.touch()
    assert client.resume(run).wait(100).status == "waiting"
    assert crewai_fleet.runner("answer", run, "--text", "It is.").returncode == 0
    # Then they hear the same, and that it failed
    failed = (
        "Counting method_execution_failed Counting inside last not allowed",
        "Counting flow_failed Counting outermost not allowed",
    )
    assert taken() == alone + Counter(failed)
    # And among the run's events what was asked is told once, and what was said once in each attempt that went on
    told = crewai_fleet.runner("events", run).stdout
    assert (told.count("flow_input_requested"), told.count("flow_input_received")) == (1, 2)
    # A fork starts with what it does, and finishes with the flow's result
    before = next(one for one in client.checkpoints(run) if one.task == "two")
    fork = client.fork(run, checkpoint=before.id)
    assert fork.wait(100).status == "waiting"
    assert crewai_fleet.runner("answer", run, "--branch", fork.branch, "--text", "Yes.").returncode == 0
    assert sorted(taken().elements()) == [
        "Counting flow_created Counting outermost",
        "Counting flow_paused Counting outermost last Fine? None",
        "Counting method_execution_finished Counting inside last",
        "Counting method_execution_paused Counting inside last Fine? None",
        "Counting method_execution_started Counting inside last",
        "gave Ann! 5 5",
        "started with 3 5",
    ]


ENDING = """
    import contextlib
    from types import SimpleNamespace
    from pydantic import BaseModel
    from runner.adapters.crewai.flow_event_filter import Ending
    from runner.flows import Flow, start
    from runner.flows.history import FlowPosition
    from runner.flows.machine import Machine
    from runner.flows.typed import Models

    class Counted(BaseModel):
        id: str = "i"
        n: int = 0

    class Once(Flow[Counted]):
        @start()
        def only(self): ...

    definition = Once.flow_definition()
    machine = Machine(definition)
    machine.begin()
    machine.finish("only", None)
    growth = SimpleNamespace(put=FlowPosition(machine, {"id": "i", "n": "n/a"}).fields(), gone=())
    def over(said): print("heard", said)
    events = SimpleNamespace(open=contextlib.nullcontext, over=over)
    flow = SimpleNamespace(own_definition=definition, committed_state=Counted(), event_filter=events)
    assert Ending(lambda _: growth, flow, Models(), "r")(SimpleNamespace(fields={})) is growth
"""


def test_a_state_that_does_not_fit_its_type_at_the_end_ends_the_flow_all_the_same(
    run_crewai: Callable[..., Any], tmp_path: Path
) -> None:
    done = run_crewai("-c", textwrap.dedent(ENDING), env={**os.environ, "HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, "heard r\n"), done.stderr
