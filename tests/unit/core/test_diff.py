"""What differs between two points: inputs, and tasks with a text diff."""

from runner.core.diff import DONE, PENDING, Side, TaskSide, compare, lines


def done(text: str, **more: int) -> TaskSide:
    return TaskSide(DONE, text, **more)


def test_two_sides_alike_differ_in_nothing_whatever_they_took():
    a = Side("a", {"topic": "owls"}, {"collect": done("one", ms=3, tokens=7)})
    b = Side("b", {"topic": "owls"}, {"collect": done("one", ms=900)})
    diff = compare(a, b)
    assert diff.empty
    assert diff.same == 1
    assert list(lines(diff)) == ["--- a", "+++ b", " no difference: the same inputs, 1 task alike"]


def test_inputs_that_changed_came_or_went():
    diff = compare(
        Side("a", {"topic": "owls", "n": 1, "old": None}), Side("b", {"topic": "hens", "n": True, "new": []})
    )
    assert [one.to_dict() for one in diff.inputs] == [
        {"name": "topic", "a": "owls", "b": "hens"},
        {"name": "n", "a": 1, "b": True},
        {"name": "old", "a": None},
        {"name": "new", "b": []},
    ]
    assert list(lines(diff))[2:] == [
        '-input topic = "owls"', '+input topic = "hens"', "-input n = 1", "+input n = true",
        "-input old = null", "+input new = []",
    ]  # fmt: skip


def test_outputs_are_compared_as_text_by_line():
    before, after = "\n".join("abcdefghij"), "\n".join("abcdXfghij")
    diff = compare(
        Side("a", tasks={"first": done("same"), "second": done(before, tokens=5), "third": TaskSide(PENDING)}),
        Side("b", tasks={"first": done("same"), "second": done(after, tokens=9, ms=4), "third": done("new")}),
    )
    assert (diff.same, diff.alike) == (1, ("first",))
    assert list(lines(diff))[2:] == [
        "@@ task second: done, 5 -> 9 tokens, ? -> 4 ms @@",
        "@@ -2,7 +2,7 @@", " b", " c", " d", "-e", "+X", " f", " g", " h",
        "@@ task third: pending -> done @@",
        "@@ -0,0 +1 @@", "+new",
        " 1 task alike",
    ]  # fmt: skip
    assert diff.to_dict()["tasks"][1] == {
        "task": "third",
        "how": "only in b",
        "a": {"status": "pending", "output": None, "tokens": None, "ms": None},
        "b": {"status": "done", "output": "new", "tokens": None, "ms": None},
        "diff": "@@ -0,0 +1 @@\n+new",
    }


def test_a_task_that_one_side_does_not_know_and_text_that_differs_in_line_ends_only():
    diff = compare(Side("a", tasks={"gone": done("x"), "end": done("x\n")}), Side("b", tasks={"end": done("x")}))
    assert [(one.task, one.text) for one in diff.tasks] == [
        ("gone", ["@@ -1 +0,0 @@", "-x"]),
        ("end", [r"-'x\n'", "+'x'"]),
    ]
    assert diff.to_dict()["tasks"][0]["b"] is None
    assert "@@ task gone: done -> not there @@" in lines(diff)


def test_how_two_tasks_stand_to_each_other():
    diff = compare(
        Side("a", tasks={"both": done("x"), "a": done("x"), "none": TaskSide("queued")}),
        Side("b", tasks={"both": done("y"), "a": TaskSide(PENDING), "b": done("x"), "none": TaskSide(PENDING)}),
    )
    assert {one.task: one.how for one in diff.tasks} == {
        "both": "changed", "a": "only in a", "b": "only in b", "none": "changed",
    }  # fmt: skip


def test_json_is_compared_by_its_lines():
    before, after = '{"title": "Owls", "pages": [1, 2]}', '{"title": "Owls", "pages": [1, 3]}'
    (one,) = compare(Side("a", tasks={"t": done(before)}), Side("b", tasks={"t": done(after)})).tasks
    assert [line for line in one.text if line[0] in "+-"] == ["-    2", "+    3"]
    (one,) = compare(Side("a", tasks={"t": done('{"n":1}')}), Side("b", tasks={"t": done('{"n": 1}')})).tasks
    assert one.text == ["@@ -1 +1 @@", '-{"n":1}', '+{"n": 1}'], "what differs in how it is written only"
