"""Functions and files that do more than one kickoff: all of it is done, as in one process, whatever dies."""

import json
import os
import signal
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Call, ModelRequest, ModelServer

pytestmark = pytest.mark.timeout(600)  # a minute each where nobody else is at work

HEAD = """
    import asyncio, os
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from crewai import LLM, Agent, Crew, Task
    from crewai.flow import Flow, listen, start
    from crewai.tools import tool

    def note(line):
        with open(Path(os.environ["OUT"]) / "{name}.trace", "a") as out:
            out.write(line + chr(10))

    @tool
    def look(word: str) -> str:
        "Looks a word up."
        note(f"look {{word}}")
        return f"found {{word}}"

    def make(text, **more):
        agent = Agent(role="clerk", goal="g", backstory="b", tools=[look])
        task = Task(
            description=text + " on {{topic}}", expected_output="x", agent=agent,
            callback=lambda output: note(f"called {{text.split()[0]}}"), **more,
        )
        return Crew(agents=[agent], tasks=[task])

    def write(*parts):
        (Path(os.environ["OUT"]) / "{name}.txt").write_text(" | ".join(str(part) for part in parts))
"""

PROGRAMS = {
    "chained": """
        def run():
            inputs = {"topic": "owls"}
            first = make("Draft").kickoff(inputs=inputs)
            second = make("Polish " + first.raw).kickoff(inputs=inputs)
            write(first.raw, second.raw)

        if __name__ == "__main__":
            run()
        """,
    "each": """
        def run():
            found = make("Each").kickoff_for_each(inputs=[{"topic": one} for one in "abc"])
            write(*[one.raw for one in found])
            return [one.raw for one in found]

        if __name__ == "__main__":
            run()
        """,
    "agent": """
        def run():
            clerk = Agent(role="clerk", goal="g", backstory="b", tools=[look])
            said = clerk.kickoff("Say something of owls.")
            write(said.raw, clerk.kickoff(f"Say it shorter: {said.raw}").raw)

        if __name__ == "__main__":
            run()
        """,
    "written": """
        result = make("Top").kickoff(inputs={"topic": "owls"})
        more = make("More " + result.raw).kickoff(inputs={"topic": "eels"})
        write(result.raw, more.raw)
        """,
    "gathered": """
        async def main():
            one, two = await asyncio.gather(
                make("One").akickoff(inputs={"topic": "a"}), make("Two").kickoff_async(inputs={"topic": "b"})
            )
            each = await make("Each").kickoff_for_each_async(inputs=[{"topic": one} for one in "cd"])
            write(one.raw, two.raw, *[one.raw for one in each])

        if __name__ == "__main__":
            asyncio.run(main())
        """,
    "pool": """
        def run():
            with ThreadPoolExecutor(3) as pool:
                found = list(pool.map(lambda topic: make("Pool").kickoff(inputs={"topic": topic}), "abc"))
            write(*[one.raw for one in found])

        if __name__ == "__main__":
            run()
        """,
    "flowing": """
        class Steps(Flow):
            @start()
            def one(self):
                return make("One").kickoff(inputs={"topic": self.state["topic"]}).raw

            @listen(one)
            def two(self, text):
                return text + "!"

        def kickoff():
            text = Steps().kickoff(inputs={"topic": "owls"})
            write(text, make("After " + text).kickoff(inputs={"topic": "eels"}).raw)

        if __name__ == "__main__":
            kickoff()
        """,
    "model": """
        def run():
            topic = LLM(model="openai/gpt-4o-mini").call("Which bird?")
            return make("On it").kickoff(inputs={"topic": topic})

        if __name__ == "__main__":
            write(run().raw)
        """,
    "parsed": """
        import argparse
        import sys

        class Trip:
            def __init__(self, city):
                self.city = city

            def run(self):
                return [make(text).kickoff(inputs={"topic": self.city}).raw for text in ("Plan", "Check")]

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--city", default="Rome")
            write(*Trip(parser.parse_args().city).run())

        if __name__ == "__main__":
            sys.exit(main())
        """,
    "clicked": """
        import click

        @click.command()
        @click.option("--city", default="Oslo")
        def main(city):
            write(make("Clicked").kickoff(inputs={"topic": city}).raw)

        if __name__ == "__main__":
            main()
        """,
}

ALONE = """
import os, runpy, sys, crewai
from crewai.rag.chromadb import config

children = {}
for number, file in enumerate(sys.argv[1:]):
    if not (pid := os.fork()):
        os.environ.update(HOME=f"{os.environ['OUT']}/home{number}", CREWAI_STORAGE_DIR=f"{os.environ['OUT']}/{number}")
        config.DEFAULT_STORAGE_PATH = os.environ["CREWAI_STORAGE_DIR"]
        os.makedirs(os.environ["HOME"])
        os.chdir(os.path.dirname(file))
        sys.argv = [file]
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as end:
            assert not end.code
        sys.stdout.flush()
        os._exit(0)
    children[pid] = file
sys.exit(" ".join(children[pid] for pid, status in (os.wait() for _ in children) if status) or None)
"""

SUBMIT = """
import dataclasses, json, os, sys
from runner.client import Client

with Client(os.environ["RUNNER_REDIS_URL"]) as client:
    handles = [client.submit(one) for one in sys.argv[1:]]
    print(json.dumps([dataclasses.asdict(one.wait(400)) for one in handles]))
"""

QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_DISABLE_VERSION_CHECK": "true"}


def _script(request: ModelRequest) -> Any:
    """Each agent that has a tool uses it once; answers are made of the request."""
    return Call("look", {"word": request.last.split()[0]}) if "look" in request.tools and not request.turn else None


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(_script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        for name, value in QUIET.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., list[str]]:
    """The programs of these names, each in a folder of its own."""

    def write(*names: str) -> list[str]:
        for name in names:
            (tmp_path / name).mkdir()
            text = textwrap.dedent(HEAD.format(name=name)) + textwrap.dedent(PROGRAMS[name])
            (tmp_path / name / "main.py").write_text(text)
        return [str(tmp_path / name / "main.py") for name in names]

    return write


@pytest.fixture
def run(run_crewai: Callable[..., Any]) -> Callable[..., str]:
    """What code printed, run with CrewAI."""

    def printed(code: str, *arguments: str, **environment: str) -> str:
        done = run_crewai("-c", code, *arguments, env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr[-4000:]
        return str(done.stdout)

    return printed


def _left(folder: Path) -> dict[str, Any]:
    """What programs wrote, and what their tools and callbacks did."""
    texts = {one.name: one.read_text() for one in folder.glob("*.txt")}
    return {**texts, **{one.name: Counter(one.read_text().splitlines()) for one in folder.glob("*.trace")}}


def _sent(models: ModelServer) -> Counter[str]:
    return Counter(json.dumps(request.body, sort_keys=True) for request in models.log)


def test_all_that_a_program_does_is_done_with_the_same_requests(
    crewai_fleet: Any,
    run: Callable[..., str],
    models: ModelServer,
    written: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    files = written(*PROGRAMS)
    for place in ("alone", "fleet"):
        (tmp_path / place).mkdir()
    run(ALONE, *files, OUT=str(tmp_path / "alone"))
    wanted, paid = _sent(models), models.requests
    models.reset()

    crewai_fleet.start("--concurrency", "2", OUT=str(tmp_path / "fleet"))
    told = run(SUBMIT, *files, **crewai_fleet.environment(OUT=str(tmp_path / "nowhere")))
    results = dict(zip(PROGRAMS, json.loads(told.splitlines()[-1]), strict=True))

    assert {name: one["status"] for name, one in results.items()} == dict.fromkeys(PROGRAMS, "completed"), results
    assert _sent(models) == wanted
    assert models.requests == paid == sum(one["ledger"]["paid"] for one in results.values())
    assert _left(tmp_path / "fleet") == _left(tmp_path / "alone")
    assert set(_left(tmp_path / "fleet")) >= {f"{name}.txt" for name in PROGRAMS}
    # Nothing of it was done where it was read.
    assert not (tmp_path / "nowhere").exists()
    # The result is what was returned, or else what the last kickoff gave.
    first, second = (tmp_path / "alone/chained.txt").read_text().split(" | ")
    assert (results["chained"]["outputs"], results["chained"]["result"]) == ({"run": second}, second)
    assert first != second
    assert json.loads(results["each"]["result"]) == (tmp_path / "alone/each.txt").read_text().split(" | ")
    assert results["agent"]["result"] == (tmp_path / "alone/agent.txt").read_text().split(" | ")[1]
    assert list(results["written"]["outputs"]) == ["main"]
    # Its parts have names.
    said = crewai_fleet.runner("events", results["each"]["run_id"], "--json").stdout
    assert all(f"run/topic={one} [{number}]" in said for number, one in enumerate("abc", 1)), said


def test_a_kill_in_any_part_pays_for_no_other(
    crewai_fleet: Any,
    run: Callable[..., str],
    models: ModelServer,
    written: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    names = ("chained", "each", "agent")
    files = written(*names)
    (tmp_path / "alone").mkdir()
    run(ALONE, *files, OUT=str(tmp_path / "alone"))
    alone = models.requests
    wanted = _left(tmp_path / "alone")
    models.reset()

    (tmp_path / "fleet").mkdir()
    worker = crewai_fleet.start("--concurrency", "1", RUNNER_MAX_ATTEMPTS="100", OUT=str(tmp_path / "fleet"))
    killed: list[int] = []

    def killing(request: ModelRequest) -> Any:
        """Every call is asked while its task is killed, once; its answer goes to nobody."""
        if request.text not in seen:
            seen.add(request.text)
            killed.append(request.number)
            for pid in worker.children():
                os.kill(pid, signal.SIGKILL)
        return _script(request)

    seen: set[str] = set()
    models.use(killing)
    told = run(SUBMIT, *files, **crewai_fleet.environment())
    results = dict(zip(names, json.loads(told.splitlines()[-1]), strict=True))

    assert {name: one["status"] for name, one in results.items()} == dict.fromkeys(names, "completed"), results
    assert len(killed) == alone == sum(one["recoveries"] for one in results.values())
    assert sum(one["ledger"]["paid"] for one in results.values()) == alone
    assert sum(one["ledger"]["in_doubt"] for one in results.values()) == alone
    assert models.requests == 2 * alone  # each once, and once more in doubt
    assert _left(tmp_path / "fleet") == wanted  # tools and callbacks once


ASKING = """
    def run():
        first = make("Draft", human_input=True).kickoff(inputs={"topic": "owls"})
        second = make("Polish " + first.raw).kickoff(inputs={"topic": "owls"})
        write(second.raw)
        return {"first": first, "second": second.raw}
"""


def test_a_person_is_waited_for_and_inputs_go_over_its_own(
    crewai_fleet: Any, models: ModelServer, tmp_path: Path
) -> None:
    main = tmp_path / "main.py"
    main.write_text(textwrap.dedent(HEAD.format(name="asking")) + textwrap.dedent(ASKING))
    crewai_fleet.start("--concurrency", "1", OUT=str(tmp_path))

    def runner(*arguments: str, code: int) -> Any:
        done = crewai_fleet.runner(*arguments, "--json", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    told = runner("submit", "main.py", "--input", "topic=eels", code=5)
    assert [one["task"] for one in told["asked"]] == ["run"]
    asked = models.requests
    done = runner("answer", told["run_id"], "--approve", code=0)
    assert models.requests == 2 * asked == done["ledger"]["paid"]
    first, second = told["asked"][0]["method_output"], (tmp_path / "asking.txt").read_text()
    assert json.loads(done["result"]) == {"first": first, "second": second}
    assert all("on eels" in request.text and "on owls" not in request.text for request in models.log)


FOUND = """
import json, os, sys
from runner.core.errors import UsageError
from runner.client.submission import prepare

for file in json.load(sys.stdin):
    try:
        found = prepare(file, alone=True)
        found.reader.close()
        print(json.dumps([found.attr, found.adapter]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""

WHOLE = ["run", "crewai"]
SCRIPT, CALLED = ["__main__()", "crewai-program"], ["run()", "crewai-program"]

#: What each file stands for: the crew that it kicks off where that is all it does, and else all it does.
STANDS_FOR: dict[str, Any] = {
    "def run(): return make('a').kickoff(inputs={'topic': 'x'}).raw": WHOLE,
    """
    def run():
        try:
            make('a').kickoff()
        except Exception as e:
            raise Exception(f"no: {e}")
    """: WHOLE,
    """
    def run():
        result = (
            make('a')
            .kickoff(
                inputs={}
            )
        )
        return result
    """: WHOLE,
    """
    async def go():
        return await make('a').akickoff()

    def run():
        asyncio.run(go())
    """: WHOLE,
    """
    def go():
        return make('a').kickoff()

    if __name__ == '__main__':
        write(go())
    """: SCRIPT,
    """
    def go():
        return make('a').kickoff()

    if __name__ == '__main__':
        go()
    """: ["__main__", "crewai"],
    """
    crew, other = make('a'), make('b')

    async def run():
        await asyncio.gather(crew.akickoff(), other.akickoff())
    """: CALLED,
    """
    if __name__ == '__main__':
        made = make('a')
        made.kickoff()
    """: ["__main__", "crewai"],
    """
    def run():
        make('a').kickoff()

    if __name__ == '__main__':
        run()
    """: WHOLE,
    """
    crew = make('a')
    result = crew.kickoff()
    """: ["crew", "crewai"],
    "def run(): write(make('a').kickoff())": CALLED,
    """
    def run():
        result = make('a').kickoff()
        write(result)
    """: CALLED,
    "def run(): return {'text': make('a').kickoff().raw}": CALLED,
    """
    def run():
        for one in 'ab':
            make(one).kickoff()
    """: CALLED,
    """
    def run():
        try:
            make('a').kickoff()
        finally:
            write('over')
    """: CALLED,
    """
    def run():
        try:
            make('a').kickoff()
        except Exception:
            write('failed')
    """: CALLED,
    """
    def run():
        with open(os.devnull) as out:
            make('a').kickoff()
    """: CALLED,
    "def run(): return [make(one).kickoff() for one in 'ab']": CALLED,
    "def run(): make('a').kickoff_for_each([{}, {}])": CALLED,
    "def run(): Agent(role='r', goal='g', backstory='b').kickoff('Hello.')": CALLED,
    "def run(): LLM(model='openai/gpt-4o-mini').call('Hello.')": CALLED,
    """
    def go():
        return make('a').kickoff()

    def run():
        go()
        go()
    """: CALLED,
    "def run(): ThreadPoolExecutor().submit(make('a').kickoff).result()": CALLED,
    """
    def run():
        try:
            make('a').kickoff()
        except BaseException:
            pass
    """: CALLED,
    """
    def made():
        return Crew(agents=[], tasks=[])

    def run():
        write(make('a').kickoff())
    """: CALLED,
    """
    result = make('a').kickoff()
    write(result)
    """: SCRIPT,
    "if __name__ == '__main__': write(make('a').kickoff())": SCRIPT,
    """
    async def run():
        return await make('a').akickoff()

    if __name__ == '__main__':
        asyncio.run(run())
    """: WHOLE,
    """
    def run():
        return make('a').kickoff()

    if __name__ == '__main__':
        write(run())
    """: SCRIPT,
}


def test_one_task_stands_for_what_does_more_than_a_kickoff(
    run_crewai: Callable[..., Any], models: ModelServer, tmp_path: Path
) -> None:
    files = [tmp_path / str(number) / "main.py" for number in range(len(STANDS_FOR))]
    for file, text in zip(files, STANDS_FOR, strict=True):
        file.parent.mkdir()
        file.write_text(f"{textwrap.dedent(HEAD.format(name='one'))}\n{textwrap.dedent(text)}\n")
    told = run_crewai("-c", FOUND, input=json.dumps(list(map(str, files))))
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert dict(zip(STANDS_FOR, found, strict=True)) == STANDS_FOR
    assert not models.requests
