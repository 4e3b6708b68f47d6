"""The record: nodes, edges, walking, storing, and what it forgets."""

import threading

import pytest

from runner.events import BaseEvent, EventNode, EventRecord, TaskCompletedEvent, TaskStartedEvent, load_event

MIRRORED = [("parent", "child"), ("triggered_by", "trigger"), ("previous", "next"), ("started", "completed_by")]


def event(kind="something", **fields):
    return BaseEvent(type=kind, **fields)


def chain(length):
    record, before = EventRecord(), None
    for i in range(length):
        before = record.add(event(event_id=f"e{i}", previous_event_id=before, emission_sequence=i + 1)).event.event_id
    return record


@pytest.fixture
def tree():
    """A kickoff with a task with an agent, each with its end."""
    record = EventRecord()
    for number, (name, kind, relatives) in enumerate(
        [
            ("crew", "crew_kickoff_started", {}),
            ("task", "task_started", {"parent_event_id": "crew"}),
            ("agent", "agent_execution_started", {"parent_event_id": "task", "triggered_by_event_id": "task"}),
            ("agent done", "agent_execution_completed", {"parent_event_id": "task", "started_event_id": "agent"}),
            ("task done", "task_completed", {"parent_event_id": "crew", "started_event_id": "task"}),
        ],
        1,
    ):
        record.add(event(kind, event_id=name, emission_sequence=number, **relatives))
    return record


def ids(nodes):
    return [node.event.event_id for node in nodes]


def assert_mirrored(record):
    for event_id, node in record.nodes.items():
        for there, back in MIRRORED + [(b, a) for a, b in MIRRORED]:
            for other in node.neighbors(there):
                assert event_id in record.nodes[other].neighbors(back)


def test_a_node_has_edges():
    node = EventNode(event=event())
    assert node.neighbors("child") == []
    node.add_edge("child", "a")
    node.add_edge("child", "b")
    assert node.neighbors("child") == ["a", "b"]


def test_what_was_added_is_found():
    record = EventRecord()
    node = record.add(event("tea", event_id="e1"))
    assert len(record) == 1
    assert "e1" in record
    assert record.get("e1") is node
    assert node.event.type == "tea"
    assert record.get("e2") is None
    assert "e2" not in record


def test_edges_point_both_ways(tree):
    assert tree.get("crew").neighbors("child") == ["task", "task done"]
    assert tree.get("task").neighbors("parent") == ["crew"]
    assert tree.get("task").neighbors("trigger") == ["agent"]
    assert tree.get("task").neighbors("completed_by") == ["task done"]
    assert tree.get("task done").neighbors("started") == ["task"]
    assert_mirrored(tree)
    line = chain(5)
    assert line.get("e2").edges == {"previous": ["e1"], "next": ["e3"]}


def test_a_relative_that_is_not_kept_has_no_edge():
    record = EventRecord()
    record.add(event(event_id="e1", parent_event_id="gone", started_event_id="e1"))
    assert record.get("e1").edges == {}


def test_walking(tree):
    assert ids(tree.roots()) == ["crew"]
    assert ids(tree.descendants("crew")) == ["task", "task done", "agent", "agent done"]
    assert tree.descendants("agent done") == []
    assert tree.descendants("unknown") == []
    assert ids(tree.all_nodes()) == ["crew", "task", "agent", "agent done", "task done"]
    assert len(chain(3).roots()) == 3


def test_descending_ends_where_events_go_round():
    record = EventRecord()
    for name in "abc":
        record.add(event(event_id=name))
    for name, child in ("ab", "bc", "ca"):
        record.get(name).add_edge("child", child)
    assert ids(record.descendants("a")) == ["b", "c"]


def test_a_record_comes_back_as_it_was(tree):
    back = EventRecord.model_validate_json(tree.model_dump_json())
    assert back.model_dump_json() == tree.model_dump_json()
    assert EventRecord.model_validate(tree.model_dump()).model_dump() == tree.model_dump()
    assert [type(node.event) for node in back.all_nodes()] == [
        type(load_event({"type": node.event.type})) for node in tree.all_nodes()
    ]
    assert isinstance(back.get("task").event, TaskStartedEvent)
    assert_mirrored(back)
    assert EventRecord.model_validate_json(EventRecord().model_dump_json()).nodes == {}


def test_a_record_that_came_back_goes_on():
    back = EventRecord.model_validate_json(chain(3).model_dump_json())
    back.add(event(event_id="e3", previous_event_id="e2"))
    assert back.get("e2").neighbors("next") == ["e3"]
    assert back.last_sequence() == 3


def test_clearing_forgets_everything(tree):
    tree.clear()
    assert len(tree) == 0
    assert tree.roots() == []


def test_a_copy_is_another_record(tree):
    copy = tree.model_copy(deep=True)
    copy.add(event(event_id="new", parent_event_id="crew"))
    assert "new" not in tree
    assert "new" not in tree.get("crew").neighbors("child")


def test_the_payload_is_not_kept():
    record, output = EventRecord(), object()
    happened = TaskCompletedEvent(output=output, task_id="t")
    node = record.add(happened)
    assert node.event.output is None
    assert happened.output is output
    happened.task_id = "changed later"
    assert node.event.task_id == "t"


# -- how much is kept


def test_the_oldest_finished_go_first():
    record = EventRecord(max_nodes=10)
    for i in range(100):
        record.add(event(event_id=f"e{i}", previous_event_id=f"e{i - 1}"))
    assert ids(record.all_nodes()) == [f"e{i}" for i in range(90, 100)]
    assert record.get("e90").edges == {"previous": [], "next": ["e91"]}
    assert_mirrored(record)


def test_what_has_not_ended_stays():
    record = EventRecord(max_nodes=10)
    record.add(event("crew_kickoff_started", event_id="crew"))
    record.add(TaskStartedEvent(event_id="open", task_id="t", parent_event_id="crew"))
    for i in range(100):
        record.add(TaskStartedEvent(event_id=f"s{i}", parent_event_id="crew"))
        record.add(TaskCompletedEvent(event_id=f"c{i}", parent_event_id="crew", started_event_id=f"s{i}"))
    assert len(record) == 10
    assert record.open_start("task_started", "t") == "open"
    assert ids(record.all_nodes())[:2] == ["crew", "open"]
    assert len(record.get("crew").neighbors("child")) == 9
    assert_mirrored(record)


def test_the_bound_yields_where_nothing_has_ended():
    record = EventRecord(max_nodes=3)
    for i in range(5):
        record.add(TaskStartedEvent(event_id=f"s{i}"))
    assert len(record) == 5


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_is_positive(bound):
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EventRecord(max_nodes=bound)


# -- open starts


def test_the_latest_start_of_a_task_counts():
    record = EventRecord()
    for name, task, number in (("e1", "t", 1), ("e5", "t", 5), ("e3", "t", 3), ("other", "u", 9)):
        record.add(TaskStartedEvent(event_id=name, task_id=task, emission_sequence=number))
    assert record.open_start("task_started", "t") == "e5"
    assert record.open_start("task_started", "nobody") is None
    assert record.open_start("crew_kickoff_started", "t") is None
    record.add(TaskCompletedEvent(task_id="t", started_event_id="e5", emission_sequence=10))
    assert record.open_start("task_started", "t") is None


# -- many threads


def test_dumping_is_safe_while_events_are_added():
    record, stop, trouble = EventRecord(max_nodes=500), threading.Event(), []

    def add(name):
        before = None
        try:
            while not stop.is_set():
                happened = TaskStartedEvent(task_id=name, parent_event_id=before, previous_event_id=before)
                before = record.add(happened).event.event_id
                record.add(TaskCompletedEvent(task_id=name, started_event_id=before, parent_event_id=before))
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=add, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            dumped = EventRecord.model_validate_json(record.model_dump_json())
            assert_mirrored(dumped)
            record.descendants(next(iter(dumped.nodes), ""))
            record.roots()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert trouble == []
