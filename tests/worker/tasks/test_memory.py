"""What a pool child keeps to itself: all that was imported before it began, it shares with the others."""

import json

import pytest

pytestmark = pytest.mark.timeout(120)

CREW = """
    import gc, json
    from runner import Crew, Task

    async def look(ctx):
        return json.dumps({"shared": gc.get_freeze_count(), "after": gc.get_threshold()[0]})

    waits = Crew(tasks=[Task(name="look", run=look)])

    def work(ctx):
        gc.collect()
        return json.dumps({"shared": gc.get_freeze_count(), "own": len(gc.get_objects())})

    crew = Crew(tasks=[Task(name="work", run=work)])
"""


def test_no_collector_walks_through_what_a_child_shares(fleet, client, write_crew):
    fleet.start("--concurrency", "1").ready()
    counted = json.loads(client.submit(f"{write_crew(CREW)}:crew").wait(60).outputs["work"])
    assert counted["shared"] > counted["own"]


def test_where_many_tasks_wait_no_collector_walks_through_them_for_each_that_begins(fleet, client, write_crew):
    fleet.start("--pool", "shared").ready()
    counted = json.loads(client.submit(f"{write_crew(CREW)}:waits").wait(60).outputs["look"])
    assert counted["shared"] > 50_000
    assert counted["after"] >= 10_000
