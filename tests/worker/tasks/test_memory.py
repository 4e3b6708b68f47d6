"""What a pool child keeps to itself: all that was imported before it began, it shares with the others."""

import json

import pytest

pytestmark = pytest.mark.timeout(120)

CREW = """
    import gc, json
    from runner import Crew, Task

    def work(ctx):
        gc.collect()
        return json.dumps({"shared": gc.get_freeze_count(), "own": len(gc.get_objects())})

    crew = Crew(tasks=[Task(name="work", run=work)])
"""


def test_no_collector_walks_through_what_a_child_shares(fleet, client, write_crew):
    fleet.start("--concurrency", "1").ready()
    counted = json.loads(client.submit(str(write_crew(CREW))).wait(60).outputs["work"])
    assert counted["shared"] > counted["own"]
