"""What callbacks before a kickoff leave on their object, where one process does tasks of several runs of that crew."""

import json
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner.client.files import files_of
from runner.crews import kickoff_callbacks
from runner.testing.in_process import InProcess

CREW = """
    import threading
    from runner import Crew, Task
    from runner.project import CrewBase, after_kickoff, before_kickoff, crew, task

    @CrewBase
    class Team:
        agents_config = tasks_config = None

        @before_kickoff
        def begin(self, inputs):
            self.who = {"called": inputs["who"], "by": "begin"}
            if inputs["who"] == "ann":
                self.ann_was_here = True
            return inputs

        @after_kickoff
        def end(self, output):
            output.raw += f" {self.who['called']} {hasattr(self, 'ann_was_here')}"
            return output

        def say(self, ctx):
            threading.meet(ctx.inputs["who"])
            return f"{ctx.inputs['who']} {self.who['called']} {hasattr(self, 'ann_was_here')}"

        @task
        def one(self):
            return Task(run=self.say)

        @crew
        def crew(self):
            return Crew(tasks=self.tasks)
    """
AT_HAND = CREW + "\n    made = Team().crew()\n"
ANN, BOB = "ann ann True ann True", "bob bob False bob False"


@pytest.fixture
def here(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path / "cache")


@pytest.fixture
def runs(tmp_path: Path, here: InProcess, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    def submitted(code: str, *names: str, meet: Callable[[str], object] = lambda _: None) -> list[str]:
        monkeypatch.setattr(threading, "meet", meet, raising=False)
        path = tmp_path / "of" / "crew.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return [here.submit(path, {"who": name}) for name in names]

    return submitted


def ends(here: InProcess, runs: list[str]) -> list[str]:
    return [here.texts(run)["after_kickoff"] for run in runs]


@pytest.mark.parametrize("code", [CREW, AT_HAND])
def test_one_run_finds_nothing_of_another_that_was_before_it(here: InProcess, runs: Any, code: str) -> None:
    found = runs(code, "ann", "bob", "ann")
    here.work()
    assert ends(here, found) == [ANN, BOB, ANN]
    # what is left is stored also where another run left the same: elsewhere there is nothing
    assert "by" in here.texts(found[2])["before_kickoff"]


def test_two_that_are_done_side_by_side_have_each_its_own(here: InProcess, runs: Any) -> None:
    both = threading.Barrier(2)
    found = runs(CREW, "ann", "bob", meet=lambda _: both.wait(30))
    for _ in found:
        here.step()
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(here.step) for _ in found]:
            done.result()
    here.work()
    assert ends(here, found) == [ANN, BOB]


def test_where_the_file_has_one_for_all_they_are_done_one_by_one(
    here: InProcess, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, waits = threading.Event(), threading.Event()

    class Turn:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.release = self.lock.release

        def acquire(self, timeout: float) -> bool:
            if self.lock.locked():
                waits.set()
            return self.lock.acquire(timeout=timeout)

    class Turns(dict[int, Turn]):
        def setdefault(self, crew: int, _: object) -> Turn:
            return super().setdefault(crew, Turn())

    def meet(who: str) -> None:
        if who == "ann":
            at_work.set()
            assert waits.wait(30)

    monkeypatch.setattr(kickoff_callbacks, "_turns", Turns())
    found = runs(AT_HAND, "ann", "bob", meet=meet)
    for _ in found:
        here.step()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(here.step)
        assert at_work.wait(30)
        second = pool.submit(here.step)
        first.result()
        second.result()
    here.work()
    assert ends(here, found) == [ANN, BOB]


WRITES = """
    from runner import Crew, Task

    def before(inputs):
        return {**inputs, "made": "of " + inputs["who"]}

    def leaves(ctx):
        (ctx.workdir / "beside.txt").write_text("beside")
        return "left"

    tasks = [
        Task(name="plain", run=lambda ctx: "plain", output_file="{made}/plain.txt"),
        Task(name="leaves", run=leaves, output_file="{made}/leaves.txt"),
    ]
    crew = Crew(tasks=tasks, before_kickoff_callbacks=[before])
    """


def test_files_are_named_by_the_inputs_as_the_callbacks_left_them(here: InProcess, runs: Any) -> None:
    (run,) = runs(WRITES, "ann")
    here.work()
    wanted = {"plain": "{made}/plain.txt", "leaves": "{made}/leaves.txt"}
    found = {one.path: one.data for one in files_of(here.runs.committed(run, "main"), wanted, {"who": "ann"})}
    assert found == {"of ann/plain.txt": b"plain", "of ann/leaves.txt": b"left", "beside.txt": b"beside"}


IN_PLACE = """
    from dataclasses import dataclass
    from pydantic import BaseModel
    from runner import Crew, Task

    class Seen(BaseModel):
        names: list[str] = []
        last: str = ""

    @dataclass
    class Last:
        name: str = ""

    class Client:
        asked = 0

    class Team:
        def __init__(self):
            self.inside = self.names = []
            self.by_place, self.apart = {"here": ([],)}, set()
            self.seen, self.last, self.client = Seen(), Last(), Client()

        def begin(self, inputs):
            who = inputs["who"]
            for one in (self.names, self.by_place["here"][0], self.seen.names):
                one.append(who)
            self.by_place[who] = who
            self.apart.add(who)
            self.seen.last, self.last.name = self.last.name, who
            self.client.asked += 1
            return {**inputs, "found": self.told()}

        def told(self):
            assert self.inside is self.names
            return [self.names, self.by_place, sorted(self.apart), self.seen.model_dump(), self.client.asked]

    team = Team()
    crew = Crew(tasks=[Task(name="one", run=lambda ctx: ctx.inputs["found"])], before_kickoff_callbacks=[team.begin])
    """


def test_what_is_changed_in_place_on_their_object_is_not_there_for_the_next_run(here: InProcess, runs: Any) -> None:
    ann, bob = runs(IN_PLACE, "ann", "bob")
    here.work()
    for times, (run, who) in enumerate(((ann, "ann"), (bob, "bob")), 1):
        *found, asked = json.loads(here.texts(run)["one"])
        assert found == [[who], {"here": [[who]], who: who}, [who], {"names": [who], "last": ""}]
        assert asked == times  # what is no data stays as it is: a client, that keeps its connection


COUNTED = """
    from collections import Counter, OrderedDict
    from dataclasses import dataclass, field
    from runner import Crew, Task

    @dataclass(slots=True)
    class Last:
        name: str = ""
        names: list = field(default_factory=list)

    class Team:
        def __init__(self):
            self.counted = Counter(before=1)
            self.ordered, self.again = {"a": 1, "b": 2}, OrderedDict(a=1, b=2)
            self.last = Last()

        def begin(self, inputs):
            stood = [dict(self.counted), list(self.ordered), list(self.again), self.last.name, list(self.last.names)]
            self.counted[inputs["who"]] += 1
            self.ordered["a"] = self.ordered.pop("a") + 1
            self.again.move_to_end("a")
            self.last.name = inputs["who"]
            self.last.names.append(inputs["who"])
            return {**inputs, "stood": stood}

    team = Team()
    crew = Crew(tasks=[Task(name="one", run=lambda ctx: ctx.inputs["stood"])], before_kickoff_callbacks=[team.begin])
    """


def test_counts_orders_and_slots_stand_for_each_run_as_they_did_for_the_first(here: InProcess, runs: Any) -> None:
    started = runs(COUNTED, "ann", "bob", "cyd")
    here.work()
    for run in started:
        assert json.loads(here.texts(run)["one"]) == [{"before": 1}, ["a", "b"], ["a", "b"], "", []]


TYPED = """
    import datetime
    from dataclasses import dataclass
    from pydantic import BaseModel
    from runner import Crew, Task

    class Seen(BaseModel):
        names: list[str] = []

    @dataclass
    class Last:
        name: str = ""

    def made():
        team = Team()
        return Crew(tasks=[Task(name="one", run=team.one)], before_kickoff_callbacks=[team.begin])

    class Team:
        def begin(self, inputs):
            self.apart, self.day = {inputs["who"]}, datetime.date(2026, 1, 2)
            self.seen, self.last, self.pair = Seen(names=["a"]), Last("b"), (1, 2)
            return inputs

        def one(self, ctx):
            return repr([self.apart, self.day, self.seen, self.last, self.pair])
    """


def test_what_they_leave_on_their_object_keeps_its_types(here: InProcess, runs: Any) -> None:
    (run,) = runs(TYPED, "ann")
    here.work()
    assert here.texts(run)["one"] == ("[{'ann'}, datetime.date(2026, 1, 2), Seen(names=['a']), Last(name='b'), (1, 2)]")
