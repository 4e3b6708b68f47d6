"""Fields of objects that each process makes anew: what is stored of them comes back in another object as it was."""

import dataclasses
import datetime
import decimal
import enum
import io
import json
import sys
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, field_validator

from runner.journal.object_state import Handle, ObjectState, stored


class Colour(enum.Enum):
    red = 1


class Seen(BaseModel):
    names: list[str] = []
    tags: set[str] = set()


@dataclasses.dataclass
class Last:
    name: str = ""


class Strict(BaseModel):
    size: int = 1

    @field_validator("size")
    @classmethod
    def _is_small(cls, value: int) -> int:
        assert value < LIMIT
        return value


class Key(BaseModel):
    name: str = "n"
    secret: SecretStr


LIMIT = 10
VALUES = [
    1, 1.5, float("inf"), None, "text", b"bytes", [1, [2]], {"a": {"b": 1}}, (1, 2), {1, 2}, {1: "by number"},
    datetime.date(2026, 1, 2), decimal.Decimal("1.10"), Colour.red, Seen(names=["a"], tags={"b"}), Last("l"),
    [Seen(names=["in"])], {"value": 1, "types": []}, {"model of pydantic": "Seen", "fields": {}},
]  # fmt: skip


def moved(value: Any) -> Any:
    """The value of a field as another process has it."""
    before, after = SimpleNamespace(), SimpleNamespace()
    one = ObjectState({"it": before})
    seen = one.seen()
    before.field = value
    state, lost = one.changed(seen)
    assert not lost
    ObjectState({"it": after, "other": SimpleNamespace()}).put(json.loads(json.dumps(state)))
    return after.field


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_field_comes_back_as_it_was(value: Any) -> None:
    found = moved(value)
    assert (type(found), found) == (type(value), value)


def test_of_what_json_does_not_restore_it_keeps_what_it_has() -> None:
    assert moved(defaultdict(lambda: 0, a=1)) == {"a": 1}
    key = Key(secret=SecretStr("hunter2"))
    assert "hunter2" not in json.dumps(stored(key))
    assert moved(key).secret.get_secret_value() == "**********"


@pytest.mark.parametrize("value", [SecretStr("hunter2"), io.StringIO("a line"), (n for n in range(2))], ids=type)
def test_secrets_and_what_can_be_read_once_stay_in_their_process(value: Any) -> None:
    assert isinstance(stored(value), Handle)
    if not isinstance(value, SecretStr):
        assert list(value), "it was not read"


@pytest.mark.parametrize("value", [defaultdict(lambda: 0, a=1), Key(secret=SecretStr("hunter2"))], ids=type)
def test_what_would_not_come_back_as_it_was_is_not_stored_exactly(value: Any) -> None:
    one = ObjectState({"tool": SimpleNamespace(field=value, day=datetime.date(2026, 1, 2))}, exactly=True)
    state, lost = one.changed({"tool": {}})
    assert (list(state["tool"]), lost) == (["day"], [("tool", "field")])


def test_what_its_class_does_not_take_any_more_is_its_json(monkeypatch: pytest.MonkeyPatch) -> None:
    state = json.loads(json.dumps(stored(Strict(size=5))))
    for change in (
        lambda: monkeypatch.setattr(sys.modules[__name__], "LIMIT", 2),
        lambda: monkeypatch.delattr(__name__ + ".Strict"),
    ):
        change()
        after = SimpleNamespace()
        ObjectState({"it": after}).put({"it": {"field": state}})
        assert after.field == {"size": 5}


def test_what_changed_is_told_and_what_cannot_be_stored() -> None:
    team = SimpleNamespace(names=["a"], client=threading.Lock(), call=print, stays={1})
    one = ObjectState({"team": team})
    before = one.seen()
    assert one.changed(before) == ({}, [])
    team.names.append("b")
    team.client, team.new = threading.Lock(), threading.Lock()
    assert one.changed(before) == ({"team": {"names": ["a", "b"]}}, [("team", "client"), ("team", "new")])
    assert isinstance(stored(len), Handle)


def test_what_an_older_version_stored_is_read() -> None:
    class Team:
        __module__ = __name__

    team = Team()
    older = {
        "who": {"called": "ann"},
        "seen": {"model of pydantic": "Seen", "fields": {"names": ["a"], "tags": []}},
        "gone": {"model of pydantic": "Gone", "fields": {"a": 1}},
    }
    ObjectState({"Team": team}).put({"Team": older, "Other": {"who": 1}})
    assert vars(team) == {"who": {"called": "ann"}, "seen": Seen(names=["a"]), "gone": {"a": 1}}


def test_a_private_attribute_of_a_model_is_one_again() -> None:
    class Tool(BaseModel):
        _used: set[str] = set()

    before, after = Tool(), Tool()
    before._used = {"a"}

    def fields(tool: Any) -> Any:
        return {**vars(tool), **tool.__pydantic_private__}

    seen = ObjectState({"tool": after}, fields).seen()
    state, _ = ObjectState({"tool": before}, fields).changed(seen)
    ObjectState({"tool": after}, fields).put(state)
    assert after._used == {"a"}
    assert "_used" not in vars(after)


def test_a_private_attribute_that_is_not_set_yet_is_one() -> None:
    class Tool(BaseModel):
        _used: int

    tool = Tool()
    ObjectState({"tool": tool}).put({"tool": {"_used": 1}})
    assert tool._used == 1
    tool._used += 1
    assert tool._used == 2
