"""A function that kicks a flow off and goes on after it: what the flow asks a person, the run asks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

PROGRAM = """
    import os
    from crewai.flow.flow import Flow, listen, start
    from crewai.flow.human_feedback import human_feedback

    class Chat(Flow):
        @start()
        def first(self):
            return self.ask("Who?")

        @listen(first)
        @human_feedback(message="Fine?")
        def second(self, who):
            return f"hello {who}"

    def kickoff():
        given = Chat().kickoff()
        with open("said.txt", "a") as out:
            out.write(given.feedback + chr(10))
        return [given.output, given.feedback]

    if __name__ == "__main__":
        kickoff()
"""


def test_a_flow_in_a_program_asks_the_run(
    crewai_fleet: Any,
    client: Client,
    write_crew: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where an answer leaves the files of the run that it completes
    program = write_crew(PROGRAM)
    crewai_fleet.start("--concurrency", "1")
    waiting = crewai_fleet.runner("submit", str(program), "--json")
    assert waiting.returncode == 5, waiting.stderr
    found = json.loads(waiting.stdout)
    assert [one["message"] for one in found["asked"]] == ["Who?"]
    run = found["run_id"]
    assert crewai_fleet.runner("answer", run, "--text", "Ann").returncode == 5
    (asked,) = client.run(run).result().asked
    assert (asked.message, asked.about["method_output"]) == ("Fine?", "hello Ann")
    assert crewai_fleet.runner("answer", run, "--text", "good").returncode == 0
    assert json.loads(client.run(run).result().result or "") == ["hello Ann", "good"]
    client.run(run).write_output_files(tmp_path / "out")
    assert (tmp_path / "out" / "said.txt").read_text() == "good\n"
