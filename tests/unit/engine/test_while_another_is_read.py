"""A task that is at work while its process reads the file of another crew: what it kicks off is kicked off."""

import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.testing.in_process import InProcess

AT_WORK = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from runner import LLM, BaseLLM, Agent, Crew, Task

    class Says(BaseLLM):
        def call(self, messages, tools=None, **options):
            return "yes"

    def inside():
        return Crew(tasks=[Task(name="inner", run=lambda ctx: "yes")]).kickoff().raw

    def asked():
        return Agent(role="Clerk", llm=Says("says")).kickoff("?").raw

    def in_thread(fn):
        said = []
        thread = threading.Thread(target=lambda: said.append(fn()))
        thread.start()
        thread.join()
        return said[0]

    def work(ctx):
        threading.at_work.set()
        assert threading.is_read.wait(30)
        with ThreadPoolExecutor(1) as pool:
            found = [inside(), asked(), in_thread(inside), pool.submit(asked).result()]
        threading.at_work_no_more.set()
        return " ".join(found)

    crew = Crew(tasks=[Task(name="one", run=work)])
    """

READ = """
    import threading
    from runner import Crew, Task

    crew = Crew(tasks=[Task(name="two", run=lambda ctx: "two")])

    if threading.at_work.is_set():
        threading.is_read.set()
        assert threading.at_work_no_more.wait(30)
        came_to = []

        def kick_off():
            try:
                crew.kickoff()
            except BaseException as end:
                came_to.append(type(end).__name__)

        thread = threading.Thread(target=kick_off)
        thread.start()
        thread.join()
        assert came_to == ["KickedOff"], came_to  # a thread of what is read is read, too
    """


def test_what_a_task_kicks_off_is_no_part_of_the_file_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = {name: threading.Event() for name in ("at_work", "is_read", "at_work_no_more")}
    for name, event in events.items():
        monkeypatch.setattr(threading, name, event, raising=False)
    files = []
    for name, text in (("one", AT_WORK), ("two", READ)):
        files.append(tmp_path / name / "crew.py")
        files[-1].parent.mkdir()
        files[-1].write_text(textwrap.dedent(text))
    first = InProcess(tmp_path / "cache")
    second = InProcess(tmp_path / "cache of another", worker="w1", store=first.store)
    one, two = map(first.submit, files)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(first.step)
        assert events["at_work"].wait(30)
        second.step()
        working.result(30)
    assert (first.texts(one), first.texts(two)) == ({"one": "yes yes yes yes"}, {"two": "two"})
