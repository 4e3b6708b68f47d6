"""A file whose name is stored data is written below its folder, or not at all."""

import contextlib
from pathlib import Path

import pytest

from runner.core import safe_paths
from runner.core.errors import LeadsOutside
from runner.core.safe_paths import write_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("name", "at"), [("a", "a"), ("a/b/c.md", "a/b/c.md"), ("/etc/x", "etc/x"), ("a/../b", "b"), ("./a//b", "a/b")]
)
def test_it_is_written_below_the_folder(folder: Path, name: str, at: str) -> None:
    assert write_below(folder, name, b"x") == folder / at
    assert write_below(folder, name, b"new") == folder / at
    assert (folder / at).read_bytes() == b"new"
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / at], "nothing else is left"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "../../../../../../x", "..", ".", "/", "", "a/", "a\0b"])
def test_what_leads_out_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(LeadsOutside):
        write_below(folder, name, b"x")
    assert not list(folder.iterdir())
    assert not (folder.parent / "x").exists()


@pytest.mark.parametrize("name", ["link/x", "deep/link/x", "file", "dangling"])
def test_links_are_not_followed(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    (outside / "real").write_text("as it was")
    (folder / "deep").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "deep/link").symlink_to("../../outside")
    (folder / "file").symlink_to(outside / "real")
    (folder / "dangling").symlink_to(outside / "x")
    with pytest.raises(LeadsOutside, match="link"):
        write_below(folder, name, b"x")
    assert [path.name for path in outside.iterdir()] == ["real"]
    assert (outside / "real").read_text() == "as it was"


@pytest.mark.parametrize("at", ["way", "x"])
def test_a_link_that_is_made_after_the_look_is_not_followed(
    folder: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = folder.parent / "outside"
    (outside / "x").write_text("as it was")
    (folder / "way").mkdir()
    look = safe_paths._is_link

    def looked(name: str, place: int) -> bool:
        found = look(name, place)
        if name == at == "way":
            (folder / "way").rmdir()
            (folder / "way").symlink_to(outside)
        elif name == at:
            (folder / "way/x").symlink_to(outside / "x")
        return found

    monkeypatch.setattr(safe_paths, "_is_link", looked)
    with contextlib.suppress(OSError):
        write_below(folder, "way/x", b"x")
    assert (outside / "x").read_text() == "as it was"
    assert [path.name for path in outside.iterdir()] == ["x"]


def test_a_folder_that_is_moved_out_meanwhile_is_still_the_one_that_was_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = folder.parent / "outside"
    replace = safe_paths._replace

    def late(place: int, name: str, data: bytes, mode: int) -> None:
        (folder / "way").rename(folder / "was")
        (folder / "way").symlink_to(outside)
        replace(place, name, data, mode)

    monkeypatch.setattr(safe_paths, "_replace", late)
    write_below(folder, "way/x", b"x")
    assert not list(outside.iterdir())
    assert (folder / "was/x").read_bytes() == b"x"
