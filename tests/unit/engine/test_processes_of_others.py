"""What a process that is for one task, or shared by tasks of one code, is asked of its kind of crew."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.core.errors import Interrupted
from runner.core.ledger import STEP, AccountKey
from runner.engine import adapters, sharing
from runner.engine.observers import WaitNotifier
from runner.engine.plugin import AdapterPlugin


class Kind(AdapterPlugin):
    """Adapters of which each task has a process, which may be shared; it notes what it is asked."""

    names = ("one", "another")
    disposable = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def may_share(self, crew: object, files: Any) -> bool:
        return crew == "plain" and list(files) == [Path("crew.py")]

    def share(self, home: Any) -> None:
        self.asked.append(("share", home))

    def prepare_shared_task(self, home: Any) -> None:
        self.asked.append(("prepare", home))


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Kind:
    found = Kind()
    monkeypatch.setattr(adapters, "_of", lambda name: (found,) if name in found.names else ())
    return found


def test_a_process_is_shared_as_its_kind_of_crew_does_it_and_no_other(kind: Kind) -> None:
    for name in ("one", "unknown"):
        adapters.share(name, "home")
        adapters.prepare_shared_task(name, "its home")
    assert kind.asked == [("share", "home"), ("prepare", "its home")]


@pytest.mark.parametrize(
    ("claim", "loaded", "may"),
    [
        ({}, {}, True),
        ({"standin": "demo"}, {}, False),
        ({"adapter": "unknown"}, {}, False),
        ({}, {"made_with": frozenset({"topic"})}, False),
        ({}, {"growing": object()}, False),
        ({}, {"crew": "with a callback"}, False),
    ],
)
def test_a_task_of_another_run_begins_beside_others_only_if_nothing_of_its_crew_is_its_own(
    kind: Kind, claim: dict[str, Any], loaded: dict[str, Any], may: bool
) -> None:
    of: Any = SimpleNamespace(**({"standin": "", "adapter": "one"} | claim))
    usual = {"crew": "plain", "files": [Path("crew.py")], "made_with": frozenset(), "growing": None}
    crew: Any = SimpleNamespace(**(usual | loaded))
    assert sharing.may_begin(of, crew) is may
    if may:
        sharing.check(of, crew)
        return
    with pytest.raises(Interrupted, match="its crew needs a process of its own"):
        sharing.check(of, crew)


def test_what_a_process_is_for_is_one_code_alone() -> None:
    codes = [("a" * 64, "crew", "crew", "one"), ("a" * 64, "crew", "crew", "another"), ("a" * 64, "crew", "two", "one")]
    assert len({sharing.code_of(*one) for one in codes}) == 3
    assert sharing.code_of(*codes[0]) == sharing.code_of(*codes[0])
    assert sharing.NO_SHARING.read(None, None, lambda: "read here") == "read here"


def test_a_pool_is_told_once_that_a_task_waits_for_a_model_and_of_nothing_else() -> None:
    sent: list[AccountKey] = []
    names = ("begin_step", "begin_steps", "record_step", "record_steps", "drop_step", "place")
    recorder: Any = SimpleNamespace(**dict.fromkeys(names), can_wait=True, mark_sent=sent.append)
    waits: list[int] = []
    notifier = WaitNotifier(recorder, lambda: waits.append(len(sent)))
    keys = [STEP, AccountKey("model", "", "gpt"), AccountKey("model", "", "gpt")]
    for key in keys:
        notifier.mark_sent(key)
    assert (sent, waits, notifier.can_wait) == (keys, [2], True)
