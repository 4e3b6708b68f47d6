"""What each type of a script's argument takes, and what it refuses, with which words."""

import json

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from runner.providers.redis import scripts

FIELDS = json.dumps(dict.fromkeys(map(str, range(1000)), 1))
TAKES = {
    "details": ["[1, 2, 3, 4]"],
    "fields": ["{}", '{"a": "x", "b": 1}', '{"keep": "5"}', '{"a": "1e18"}', FIELDS],
    "flat": ["[]", '["a", "1"]', json.dumps(["x"] * 1000)],
    "int": ["0", "9" * 15],
    "map": ["{}", '{"a": "b"}'],
    "pairs_of_texts": ["[]", '[["a", "b"]]'],
    "said": ["{}", '{"p0": "1 []"}', '{"p0": "who knows"}'],
    "texts": ["[]", '["a"]'],
    "depths": ['{"jobs": 0, "other": 999999999999999}'],
    "waits": ['[{"task": "a", "met": 1}]'],
    "tasks": ['[{"task":"a","needs":0,"context":"[]","timeout":"0","pool":"thread"}]'],
    "new_runs": ['[{"id":"r","number":1,"inputs":"{}","beginning":"{}"}, {"id":"r","number":1,"inputs":"{}"}]'],
}  # fmt: skip

REFUSES = {
    ("details", "[1, 2, 3]"): "four numbers",
    ("tasks", '[{"task":"a","needs":0,"context":"[]","timeout":"0","pool":1}]'): "made of texts",
    ("new_runs", '[{"id":"r","number":1,"inputs":"{}","beginning":1}]'): "made of texts",
    ("fields", '{"a": []}'): "made of texts",
    ("fields", '{"a": 1.5}'): "made of whole numbers",
    ("fields", '{"keep": "1e18"}'): "a whole number",
    ("fields", FIELDS[:-1] + ', "more": 1}'): "an object of 1000 fields at most",
    ("flat", '["a"]'): "fields with values",
    ("flat", json.dumps(["x"] * 1002)): "fields with values",
    ("int", "9" * 16): "a whole number",
    ("int", "1.5"): "a whole number",
    ("int", "-1"): "a whole number",
    ("int", ""): "a whole number",
    ("texts", "["): "JSON",
    ("texts", "1"): "JSON",
    ("texts", '{"a": "b"}'): "a list",
    ("texts", "[1]"): "made of texts",
    ("pairs_of_texts", '["ab"]'): "a list",
    ("map", '["a"]'): "an object",
    ("map", '{"a": 1}'): "made of texts",
    ("waits", '["ab"]'): "an object",
    ("waits", "[1]"): "an object",
    ("depths", '{"jobs": "1"}'): "made of whole numbers",
    ("depths", '{"jobs": -1}'): "made of whole numbers",
    ("depths", '{"jobs": 1e15}'): "made of whole numbers",
    ("depths", '{"jobs": 0.5}'): "made of whole numbers",
    ("said", '{"p0": "1 [1]"}'): "a list",
}


def call(redis: Redis, kind: str, given: str | bytes) -> None:
    scripts.LuaScript("example", f"-- Takes one.\n--\n-- ARGV slot:{kind}\nreturn 1")(redis, slot=given)


@pytest.mark.parametrize("kind", TAKES)
def test_what_it_takes(redis: Redis, kind: str) -> None:
    for given in TAKES[kind]:
        call(redis, kind, given)


@pytest.mark.parametrize(("kind", "given"), REFUSES, ids=lambda one: one[:30])
def test_what_it_refuses(redis: Redis, kind: str, given: str | bytes) -> None:
    with pytest.raises(ResponseError, match=f"example.lua: slot(\\.keep)? is not {REFUSES[kind, given]}"):
        call(redis, kind, given)
