"""``flow.kickoff()``: which methods run, and what they get."""

import asyncio
import threading
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from runner.core.errors import BadFlow, Conflict, FlowLoop
from runner.flows import Flow, and_, listen, router, start


class Counted(BaseModel):
    count: int = 0
    names: list[str] = []


def both() -> threading.Barrier:
    """Two methods that meet here do run side by side."""
    return threading.Barrier(2, timeout=20)


def test_outputs_go_to_who_takes_them_and_the_last_one_is_the_result():
    class F(Flow):
        @start()
        def begin(self):
            return "seed"

        @listen(begin)
        def takes(self, text):
            return f"{text}!"

        @listen(takes)
        def takes_not(self):
            return "end"

    flow = F()
    assert flow.kickoff() == "end"
    assert flow.method_outputs == ["seed", "seed!", "end"]
    assert flow.completed_methods == {"begin", "takes", "takes_not"}


def test_what_no_store_could_hold_goes_from_inputs_to_a_method_and_on():
    lock = threading.Lock()

    class F(Flow[dict]):
        @start()
        def takes(self):
            return self.state["lock"]

        @listen(takes)
        def hands_on(self, found):
            return found

    assert F().kickoff({"lock": lock}) is lock


def test_coroutine_methods_and_plain_ones_mix():
    class F(Flow[dict]):
        @start()
        async def a(self):
            await asyncio.sleep(0)
            return "a"

        @listen(a)
        def b(self, text):
            return text + "b"

        @listen(b)
        async def c(self, text):
            return text + "c"

    assert F().kickoff() == "abc"
    assert asyncio.run(F().kickoff_async()) == "abc"
    assert asyncio.run(F().akickoff(inputs={"x": 1})) == "abc"


def test_kickoff_inside_a_running_loop():
    class F(Flow):
        @start()
        async def a(self):
            return "a"

    async def outer() -> Any:
        return F().kickoff()

    assert asyncio.run(outer()) == "a"


def test_listeners_of_one_method_run_side_by_side():
    meet = both()

    class F(Flow):
        @start()
        def begin(self): ...

        @listen(begin)
        def one(self):
            meet.wait()

        @listen(begin)
        def other(self):
            meet.wait()

        @listen(and_(one, other))
        def end(self):
            return "met"

    assert F().kickoff() == "met"


def test_routers_take_text_enums_and_numbers_and_none_goes_nowhere():
    class Way(Enum):
        left = "left"

    class F(Flow):
        @start()
        def begin(self):
            return self.state.get("result")

        @router(begin)
        def route(self, result):
            return result

        @listen("left")
        def by_label(self, label):
            return ("went", label)

        @listen("0")
        def zero(self):
            return "zero"

    assert F().kickoff({"result": "left"}) == ("went", "left")
    assert F().kickoff({"result": Way.left}) == ("went", Way.left)
    assert F().kickoff({"result": 0}) == "zero"
    assert F().kickoff({"result": None}) is None
    assert F().kickoff({"result": "nowhere"}) == "nowhere"


def test_a_router_that_is_an_entry_point():
    class F(Flow):
        @start()
        @router(emit=["on"])
        def decide(self) -> str:
            return "on"

        @listen("on")
        def go(self, label):
            return f"went {label}"

    assert F().kickoff() == "went on"
    assert F.flow_definition().methods["decide"].emit == ("on",)


def test_labels_are_read_from_the_annotation():
    class F(Flow):
        @start()
        @router()
        def decide(self) -> Literal["yes", "no"] | None:
            return "yes"

    assert F.flow_definition().methods["decide"].emit == ("yes", "no")


def test_loops():
    class F(Flow[Counted]):
        @start("again")
        def work(self):
            self.state.count += 1

        @router(work)
        def enough(self):
            return "again" if self.state.count < 25 else "done"

        @listen("done")
        def end(self):
            return self.state.count

    assert F().kickoff() == 25
    assert F(max_method_calls=30).kickoff() == 25
    with pytest.raises(FlowLoop, match=r"triggered more than 10 times.*max_method_calls"):
        F(max_method_calls=10).kickoff()


def test_a_second_kickoff_begins_anew_and_keeps_the_state():
    class F(Flow[Counted]):
        @start()
        def work(self):
            self.state.count += 1
            return self.state.count

    flow = F()
    assert [flow.kickoff(), flow.kickoff()] == [1, 2]
    assert flow.method_outputs == [2]


def test_methods_of_a_base_class_count_and_can_be_written_anew_or_taken_away():
    class Base(Flow):
        @start()
        def begin(self):
            return "base"

        @listen(begin)
        def extra(self): ...

    class Sub(Base):
        extra = None

        def begin(self):
            return "sub"

        @listen("begin")
        def end(self, text):
            return f"{text}!"

    assert Sub().kickoff() == "sub!"
    assert list(Sub.flow_definition().methods) == ["begin", "end"]
    assert Base().kickoff() is None


def test_a_subclass_needs_no_super_init():
    class F(Flow[dict]):
        def __init__(self, word):
            self.word = word
            self.state["word"] = word

        @start()
        def begin(self):
            return self.word + self.state["word"]

    assert F("a").kickoff() == "aa"


def test_what_can_never_run_is_refused():
    class NoStart(Flow):
        @listen("x")
        def a(self): ...

        @router(a)
        def b(self): ...

    class Typo(Flow):
        @start()
        def begin(self): ...

        @listen("beginn")
        def next(self): ...

    class Lonely(Flow):
        @start()
        def begin(self): ...

        @router()
        def route(self): ...

    with pytest.raises(BadFlow, match=r"no method with @start"):
        NoStart().kickoff()
    with pytest.raises(BadFlow, match=r"'next' listens to 'beginn'; did you mean 'begin'\?"):
        Typo().kickoff()
    with pytest.raises(ValueError, match=r"router 'route' listens to nothing"):
        Lonely().kickoff()


def test_options():
    class F(Flow):
        topic: str = "owls"

        @start()
        def begin(self):
            return self.topic

    assert F(topic="hens", name="mine").kickoff() == "hens"
    with pytest.raises(TypeError, match="no option 'tpoic'"):
        F(tpoic="x")
    with pytest.raises(TypeError, match="no option 'begin'"):
        F(begin="x")
    with pytest.raises(TypeError, match="checkpoint must be"):
        F(checkpoint="yes")


def test_one_flow_runs_one_kickoff_at_a_time():
    class F(Flow):
        @start()
        def begin(self):
            return self.kickoff()

    with pytest.raises(Conflict, match="already running"):
        F().kickoff()
