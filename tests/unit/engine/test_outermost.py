"""Which of a file's agents is meant: the one that has the others work for it."""

from collections.abc import Sequence

import pytest

from runner.engine import adapters
from runner.engine.plugin import AdapterPlugin


class Team:
    def __init__(self, *parts: object) -> None:
        self.own = parts


class TeamPlugin(AdapterPlugin):
    def is_agent(self, thing: object) -> bool:
        return isinstance(thing, Team)

    def is_flow(self, thing: object) -> bool:
        return False

    def parts(self, thing: object) -> Sequence[object]:
        return thing.own if isinstance(thing, Team) else ()


def names(monkeypatch: pytest.MonkeyPatch, **things: object) -> list[str]:
    monkeypatch.setattr(adapters, "plugins", lambda: (TeamPlugin(),))
    return [name for name, _ in adapters.chosen(list(things.items()))]


def test_sub_agents_are_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Team(), Team()
    assert names(monkeypatch, one=one, two=two, lead=Team(one, two)) == ["lead"]


def test_nor_are_those_of_a_team_that_has_no_name_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Team(), Team()
    assert names(monkeypatch, one=one, two=two, graph=Team(Team(Team(one, two)))) == ["graph"]


def test_of_agents_that_hand_over_to_each_other_the_one_with_most_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    triage, sales, third = Team(), Team(), Team()
    triage.own, sales.own = (sales, third), (triage,)
    assert names(monkeypatch, sales=sales, triage=triage, third=third) == ["triage"]
