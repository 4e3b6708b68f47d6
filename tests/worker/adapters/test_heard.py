"""What listeners in the file of a crew of CrewAI hear of its kickoff: on the fleet what they hear in one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.client import Client
from runner.testing import Call, ModelServer, Rule
from runner.testing.fleet import eventually

CREW = """
    import os, signal, time
    from pathlib import Path
    from crewai import LLM, Agent, Crew, Task
    from crewai.events import (
        BaseEventListener, CrewKickoffCompletedEvent, CrewKickoffFailedEvent, CrewKickoffStartedEvent
    )
    from crewai.tasks.conditional_task import ConditionalTask
    from crewai.tools import tool

    FOLDER = Path({folder!r})

    def note(line):
        with (FOLDER / "heard").open("a") as out:
            out.write(line + chr(10))

    class Listener(BaseEventListener):
        def setup_listeners(self, bus):
            @bus.on(CrewKickoffStartedEvent)
            def started(source, event): note(f"{{event.crew_name}} started, {{event.inputs}}")

            @bus.on(CrewKickoffCompletedEvent)
            def completed(source, event):
                time.sleep({slow})  # longer than the coroutine beside it: who waits for that alone loses this line
                note(f"{{event.crew_name}} completed: {{event.output.raw}}")

            @bus.on(CrewKickoffCompletedEvent)
            async def counted(source, event): note(f"{{event.crew_name}} took {{event.total_tokens}}")

            @bus.on(CrewKickoffFailedEvent)
            def failed(source, event): note(f"{{event.crew_name}} failed: {{event.error}}")

    listener = Listener()

    def model(): return LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="none")

    def agent(**more): return Agent(role="R", goal="g", backstory="b", llm=model(), **more)

    @tool("die")
    def die() -> str:
        "Dies, once."
        if not (FOLDER / "died").exists():
            (FOLDER / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @tool("inner")
    def inner() -> str:
        "Another crew."
        task = Task(description="Inside.", expected_output="e", agent=agent())
        return Crew(name="inner", agents=[task.agent], tasks=[task]).kickoff(inputs={{"a": "b"}}).raw

    def checked(output):
        return (True, output) if (FOLDER / "allowed").exists() else (False, "not allowed")

    def outer(**more):
        doing = agent(tools=[die, inner])
        common = {{"expected_output": "e", "agent": doing}}
        common["guardrail_max_retries"] = 0
        one = Task(name="one", description="First {{x}}.", **common)
        two = Task(name="two", description="Second.", context=[one], **common)
        three = Task(name="three", description="Third.", context=[], guardrail=checked, **common)
        return Crew(name="outer", agents=[doing], tasks=[one, two, three], **more)

    crew = outer()
    whole = outer(planning=True, planning_llm=model(), after_kickoff_callbacks=[lambda output: output])

    def break_off(inputs): raise ValueError("no such day")

    broken = outer(before_kickoff_callbacks=[break_off])

    def perhaps(name, kind=Task, **more):
        about = {{"description": name, "expected_output": "e", "agent": agent()}}
        return kind(name=name, **about, **more)

    unwanted = perhaps("unwanted", ConditionalTask, condition=lambda output: "wanted" in output.raw)
    tasks = [perhaps("first"), unwanted, perhaps("at last", context=[])]
    maybe = Crew(name="maybe", agents=[tasks[0].agent], tasks=tasks)

    if __name__ == "__main__":
        crew.kickoff(inputs={{"x": "owl"}})
"""

PLANS = [{"task_number": number, "task": "it", "plan": "Do it."} for number in (1, 2, 3)]
RULES = [
    Rule("Based on these tasks summary", json.dumps({"list_of_plans_per_task": PLANS})),
    Rule("Inside.", "from inside"),
    Rule("First owl.", Call("die", {}), "one's"),
    Rule("Second.", Call("inner", {}), "two's"),
    Rule("Third.", "three's"),
    Rule("at last", "the end"),
]

HEARD = [
    *("inner completed: from inside", "inner started, {'a': 'b'}", "inner took"),
    *("outer completed: three's", "outer started, {'x': 'owl'}", "outer took"),
]


def without_tokens(lines: list[str]) -> list[str]:
    return [line.rstrip("0123456789 ") for line in lines]


def taken(heard: Path, many: int) -> list[str]:
    """What was heard since the last time, once that is so many lines: who waits for a run may see its end before
    handlers hear of it."""
    eventually(lambda: heard.exists() and heard.read_text().count("\n") >= many)
    found = heard.read_text().splitlines()
    heard.unlink()
    return sorted(found)


def test_listeners_hear_of_one_kickoff(
    crewai_fleet: Any, run_crewai: Callable[..., Any], client: Client, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    heard, died, allowed = (tmp_path / name for name in ("heard", "died", "allowed"))
    with ModelServer(RULES) as models:
        crew = write_crew(CREW.format(url=models.root + "/v1", folder=str(tmp_path), slow=1.0))
        # Given what they hear in one process
        died.touch()
        allowed.touch()
        run_crewai(crew, cwd=tmp_path, env=crewai_fleet.environment()).check_returncode()
        alone = taken(heard, 6)
        assert without_tokens(alone) == HEARD
        # When each task is done by one of two workers, the first is killed, the last one fails, and goes on
        died.unlink()
        allowed.unlink()
        for _ in range(2):
            crewai_fleet.start("--concurrency", "1")
        done = crewai_fleet.runner("submit", f"{crew}:crew", "--input", "x=owl", "--json")
        assert (done.returncode, died.exists()) == (1, True), done.stderr
        failed, run = taken(heard, 5), json.loads(done.stdout)["run_id"]
        allowed.touch()
        assert client.resume(run).wait(100).status == "completed"
        # Then they hear the same, and that it failed
        ends = [line for line in failed if line.startswith("outer failed: Task failed guardrail")]
        assert (len(ends), sorted([*failed, *taken(heard, 2)])) == (1, sorted([*alone, *ends]))
        # A fork that does one task in the middle again tells of it as of a kickoff with the crew's output
        fork = client.fork(run, edits={"one": "another"})
        assert fork.wait(100).status == "completed"
        assert without_tokens(taken(heard, 6)) == HEARD


def test_a_planner_and_an_end_of_its_own_are_no_kickoffs_either(
    crewai_fleet: Any, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    for name in ("died", "allowed"):
        (tmp_path / name).touch()
    with ModelServer(RULES) as models:
        crew = write_crew(CREW.format(url=models.root + "/v1", folder=str(tmp_path), slow=1.0))
        crewai_fleet.start("--concurrency", "1")
        done = crewai_fleet.runner("submit", f"{crew}:whole", "--input", "x=owl")
        assert done.returncode == 0, done.stderr
        assert without_tokens(taken(tmp_path / "heard", 6)) == HEARD


def test_what_is_done_without_a_kickoff_is_heard_of_as_one(
    crewai_fleet: Any, run_crewai: Callable[..., Any], client: Client, write_crew: Callable[..., Path], tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    with ModelServer(RULES) as models:
        crew = write_crew(CREW.format(url=models.root + "/v1", folder=str(tmp_path), slow=1.0))
        # A callback before the kickoff that raises: it failed, in one process and on the fleet
        broken = "import crew; crew.broken.kickoff(inputs={'x': 'owl'})"
        alone = run_crewai("-c", broken, cwd=crew.parent, env=crewai_fleet.environment())
        assert "ValueError: no such day" in alone.stderr
        assert taken(heard, 1) == ["outer failed: no such day"]
        crewai_fleet.start("--concurrency", "1")
        done = crewai_fleet.runner("submit", f"{crew}:broken", "--input", "x=owl", "--json")
        run = json.loads(done.stdout)
        assert (done.returncode, run["error"]) == (1, "task 'before_kickoff': ValueError: no such day (crew.py:68)")
        assert taken(heard, 1) == ["outer failed: no such day"]
        assert crewai_fleet.runner("events", run["run_id"]).stdout.count("crew_kickoff_failed") == 1
        # A fork that has only a task to do which is not wanted: it starts, and is done with the crew's output
        run = json.loads(crewai_fleet.runner("submit", f"{crew}:maybe", "--json").stdout)
        assert run["status"] == "completed"
        said = without_tokens(taken(heard, 3))
        assert client.fork(run["run_id"], edits={"first": "another"}).wait(100).status == "completed"
        assert without_tokens(taken(heard, 3)) == said
        assert said == ["maybe completed: the end", "maybe started, None", "maybe took"]
