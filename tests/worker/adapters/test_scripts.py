"""What a file does as a script is found by doing it up to its kickoff, where it is submitted and on the worker."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.testing import ModelServer

WORKER = """
import json, os, sys
from runner.client.submission import prepare
from runner.core.errors import UsageError
from runner.engine.code_cache import CodeCache

class One:
    def __init__(self, data):
        self.data = data
    def bundle(self, sha):
        return self.data

GIVEN = {"city": "Paris"}
for number, (folder, target) in enumerate(json.load(sys.stdin)):
    os.chdir(folder)
    try:
        for _ in range(2):  # the second finds what the first left in the module
            found = prepare(target, inputs=GIVEN, alone=True)
            found.reader.close()
        cache = CodeCache(One(found.packed.data), __import__("pathlib").Path(sys.argv[1]) / str(number))
        packed = found.packed
        there = cache.get(packed.sha256, packed.module, found.attr, found.plan.crew, GIVEN)
        tasks = [task.description for task in getattr(there.crew, "tasks", ())]
        print(json.dumps([found.attr, found.inputs, tasks, sys.argv[1:]]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""

MAKES_ONE = """
    from crewai import Agent, Crew, Task

    def made(city):
        agent = Agent(role="r", goal="g", backstory="b")
        task = Task(description=f"On {city} in {{month}}.", expected_output="x", agent=agent)
        return Crew(agents=[agent], tasks=[task])
"""

SCRIPTS: dict[str, Any] = {
    """
    if __name__ == "__main__":
        import sys
        assert len(sys.argv) == 1
        crew = made("Rome")
        result = crew.kickoff(inputs={"month": "May"})
    """: ["__main__", {"month": "May"}, ["On Rome in {month}."]],
    """
    class Trip:
        def __init__(self, city):
            self.crew = made(city)
        async def go(self):
            return await self.crew.kickoff_async(inputs={"month": MONTH})

    if "__main__" == __name__:
        import asyncio
        MONTH = "June"
        asyncio.run(Trip("Oslo").go())
    """: ["__main__", {"month": "June"}, ["On Oslo in {month}."]],
    """
    class Trip:
        def __init__(self, city):
            self.city = city
        def run(self):
            return made(self.city).kickoff(inputs={"month": "July"})

    if __name__ == "__main__":
        Trip(input("Where to? ")).run()
    """: ["Trip.run", {"month": "July"}, ["On Paris in {month}."]],
    """
    class Trip:
        def __init__(self, city, days, *, pace="slow"):
            self.city = city
        def crew(self) -> Crew:
            return made(self.city)
    """: "main.py:Trip is made with city, days: give --input days=...",
    """
    crew = made("Bonn")
    if __name__ == "__main__":
        made("Rome").kickoff()
    """: ["crew", {}, ["On Bonn in {month}."]],
    """
    class Trip:
        def __init__(self, place):
            self.place = place
        def run(self):
            return made(self.place).kickoff(inputs={"month": "August"})

    def main():
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--place", default="Bern")
        Trip(parser.parse_args().place).run()

    if __name__ == "__main__":
        main()
    """: ["__main__", {"month": "August"}, ["On Bern in {month}."]],
    """
    class Trip:
        def __init__(self, place):
            self.place = place
        def run(self):
            return made(self.place).kickoff()

    if __name__ == "__main__":
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("place")
        Trip(parser.parse_args().place).run()
    """: "main.py:Trip is made with place: give --input place=...",
    """
    import click

    @click.group()
    def cli():
        pass

    @cli.command()
    @click.option("--city", default="Kiel")
    def go(city):
        made(city).kickoff(inputs={"month": "May"})

    if __name__ == "__main__":
        cli(["go"])
    """: ["__main__()", {}, []],
    """
    if __name__ == "__main__":
        made("Rome")
        raise AssertionError("kicks nothing off, so it is not done")
    """: "main.py: no crew or flow in it; it defines made (a function): name main.py:__main__() to run it as a script, "
    "or write crew = Crew(...) in it, or a function without arguments that returns one",
    """
    if __name__ == "__main__":
        made(input("Where to? ")).kickoff()
    """: "main.py:10: input() needs a terminal, which a worker does not have: make it an input of the kickoff, for "
    "--input NAME=VALUE, or name a function that creates the crew without asking, as in main.py:make",
    """
    if __name__ == "__main__":
        made({}["city"]).kickoff()
    """: "main.py:10: KeyError: 'city'",
}


def test_what_a_file_does_as_a_script_is_done_up_to_its_kickoff(
    run_crewai: Callable[..., Any], models: ModelServer, tmp_path: Path
) -> None:
    for number, code in enumerate(SCRIPTS):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "main.py").write_text(textwrap.dedent(MAKES_ONE) + textwrap.dedent(code))
    targets = json.dumps([(str(tmp_path / str(number)), "main.py") for number in range(len(SCRIPTS))])
    cache = str(tmp_path / "cache")
    told = run_crewai("-c", WORKER, cache, input=targets)
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert found == [[*said, [cache]] if isinstance(said, list) else said for said in SCRIPTS.values()]
    assert not models.requests
