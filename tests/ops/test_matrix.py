"""The matrix of kills counts by itself, so that a ledger that agrees with itself alone is not believed.

And the docs say what was measured."""

import importlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ASKED, USED = Counter([b"first", b"second"]), Counter(["0"])
LEDGER = {"paid": 2, "in_doubt": 2, "tools": {"paid": 1, "in_doubt": 1}}


@pytest.fixture
def load(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    folder = root / "ops" / "chaos"
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def chaos(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("matrix_account")


def found(chaos: ModuleType, ledger: dict[str, Any] = LEDGER, **other: Any) -> list[str]:
    alone = chaos.Seen(ASKED, USED)
    exact = chaos.Seen(ASKED + ASKED, USED + USED, ASKED, USED, 3)
    return chaos.wrong(alone, exact._replace(**other), ledger, moments=1, ends=0, one_by_one=True)


def test_what_is_exact_is_right(chaos: ModuleType) -> None:
    assert found(chaos) == []


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("a call was made again, and is in doubt in the ledger", {"asked": ASKED + ASKED + Counter([b"first"])}),
        ("as many calls, but not the same ones", {"asked": Counter({b"first": 3, b"second": 1})}),
        ("another request than alone", {"asked": ASKED + ASKED + Counter([b"third"])}),
        ("a call was never killed", {"hit": Counter([b"first"])}),
        ("a use was made again, and is in doubt in the ledger", {"used": Counter({"0": 3})}),
        ("a use was never killed", {"used": USED, "dead": Counter()}),
        ("no kill where something had been recorded", {"recorded": 0}),
    ],
)
def test_what_a_ledger_that_goes_along_would_hide_is_wrong(
    chaos: ModuleType, what: str, other: dict[str, Counter[Any]]
) -> None:
    seen = chaos.Seen(ASKED + ASKED, USED + USED)._replace(**other)
    doubt = {"in_doubt": (seen.asked - ASKED).total(), "tools": {"paid": 1, "in_doubt": (seen.used - USED).total()}}
    assert found(chaos, {**LEDGER, **doubt}, **other) != [], what


@pytest.mark.parametrize("part", ["paid", "in_doubt"])
def test_a_ledger_that_is_off_is_wrong(chaos: ModuleType, part: str) -> None:
    assert found(chaos, {**LEDGER, part: 3}) == [f"the ledger has 3 calls {part.replace('_', ' ')}"]
    tools = {**LEDGER["tools"], part: 0}
    assert found(chaos, {**LEDGER, "tools": tools}) == [f"the ledger has 0 uses {part.replace('_', ' ')}"]


def test_the_docs_say_what_was_measured(load: Callable[[str], ModuleType]) -> None:
    made, rows = load("matrix_page"), load("matrix").ROWS
    for file, written in ((made.PAGE, made.page), (made.README, made.readme)):
        text = file.read_text("utf-8")
        assert written(text) == text, "run ops/chaos/matrix_page.py"
        assert made.told() in text
    assert list(made.measured()) == [name for name in rows if name in made.measured()]


def test_what_is_noted_is_exact_and_committed(load: Callable[[str], ModuleType]) -> None:
    made, rows = load("matrix_page"), load("matrix").ROWS
    for name, row in made.measured().items():
        ends = bool(rows[name].last)
        assert (row["kills"], row["calls"], row["uses"]) == (22 + ends, [12, 6, 6], [10, 5, 5]), name
        assert "dirty" not in row["commit"], name


@pytest.fixture
def notes(load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Where measurements are noted, in a repository of its own."""
    made = load("matrix_page")
    monkeypatch.setattr(made, "REPOSITORY", tmp_path)
    for name in ("MEASURED", "PAGE", "README"):
        monkeypatch.setattr(made, name, tmp_path / name)
        (tmp_path / name).touch()
    (tmp_path / "product").touch()
    git = "git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "all")):
        subprocess.run([*git, *words], check=True)
    return made


ROW = {"version": "1", "kills": 22, "calls": [12, 6, 6], "uses": [10, 5, 5]}


def test_what_was_noted_before_makes_no_commit_dirty(notes: ModuleType) -> None:
    head = notes.commit()
    for name in ("first", "second"):
        notes.note(name, ROW, ("first", "second"), notes.commit())
    assert {row["commit"] for row in notes.measured().values()} == {head}
    (notes.REPOSITORY / "product").write_text("changed")
    assert notes.commit() == f"{head}-dirty"


def test_two_that_note_at_the_same_time_lose_nothing(notes: ModuleType) -> None:
    other = threading.Thread(target=notes.note, args=("second", ROW, ("first", "second"), "1"))

    def order() -> Iterator[str]:
        other.start()  # between what the first has read and what it writes
        other.join(0.2)
        yield from ("first", "second")

    notes.note("first", ROW, order(), "1")
    other.join()
    assert list(notes.measured()) == ["first", "second"]


def test_requests_differ_by_what_their_client_does_not_make_up(load: Callable[[str], ModuleType]) -> None:
    asked = load("matrix_models").Asked((1,))
    one = {"X-Amz-Date": "1", "User-Agent": "Boto3 m/Z,b cfg", "Authorization": "AWS4-HMAC 1"}
    other = {"X-Amz-Date": "2", "User-Agent": "Boto3 m/b,Z cfg", "Authorization": "AWS4-HMAC 2"}
    google = b'{"id": "pyd_ai_%s"}'
    came = [
        asked.take("/v1", one.items(), google % (b"0" * 32)),
        asked.take("/v1", other.items(), google % (b"1" * 32)),
    ]
    assert came[0].request == came[1].request
    assert [one.before for one in came] == [0, 1]
    for path, headers in (("/v1?a=1", one), ("/v1", {**one, "Accept": "*/*"}), ("/v1", {**one, "Authorization": "B"})):
        assert asked.take(path, headers.items(), google % (b"0" * 32)).before == 0
