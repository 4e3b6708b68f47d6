"""The reader of the pages is not lenient: it fails where a page says what is not so."""

from pathlib import Path

import pytest

PAGE = "## Part\n\n### One\n\n{}\n"

GOOD = [
    '```python\nprint("a")\n```\n\n```text\na\n```',
    "```console\n$ echo a\na\n$ false\n$ echo $?\n1\n```",
    "```console\n$ echo 20260101T000000_0a1b2c3d\n20261121T071208_7a9d0e1b\n$ expr 7a9d0e1b = 0a1b2c3d\n1\n```",
    "```console\n$ echo took 0.3 s, 12 KB\ntook 7 s, 1.5 MB\n```",
    "```console\n$ seq 5\n1\n...\n5\n```",
    "```console\n$ ls nowhere 2>/dev/null; echo error: gone; false\nerror: gone\n```",
    '```python\n# one.py\nprint("a")\n```\n\n```sh\npython one.py\n```\n\n```text\na\n```',
]

BAD = {
    "other output": '```python\nprint("b")\n```\n\n```text\na\n```',
    "more output": "```console\n$ seq 2\n1\n```",
    "less output": "```console\n$ true\n1\n```",
    "a failure": "```console\n$ false\n```",
    "a failure in the middle": "```sh\nfalse\ntrue\n```",
    "an exception": "```python\n1 / 0\n```",
    "two ids for one": (
        "```console\n$ echo 20260101T000000_0a1b2c3d 20260101T000001_0a1b2c3d\n"
        "20261121T071208_7a9d0e1b 20261121T071208_7a9d0e1b\n```"
    ),
    "another id later": (
        "```console\n$ echo 20260101T000000_0a1b2c3d\n20261121T071208_7a9d0e1b\n"
        "$ echo 20260101T000000_ffffffff\n20261121T071208_7a9d0e1b\n```"
    ),
}


@pytest.fixture
def read_out(tmp_path, follow, sections_of):
    """Follows a page with this in it."""

    def run(blocks: str) -> None:
        page: Path = tmp_path / "page.md"
        page.write_text(PAGE.format(blocks))
        [section] = sections_of(page)
        follow(page, section.blocks)

    return run


@pytest.mark.parametrize("blocks", GOOD)
def test_what_is_so_passes(read_out, blocks):
    read_out(blocks)


@pytest.mark.parametrize("blocks", BAD.values(), ids=BAD)
def test_what_is_not_so_fails(read_out, blocks):
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:5"):
        read_out(blocks)


def test_output_of_nothing_is_a_mistake(read_out):
    with pytest.raises(AssertionError, match="the output of what"):
        read_out("```text\na\n```")


def test_a_block_without_an_end_is_a_mistake(read_out):
    with pytest.raises(AssertionError, match="has no end"):
        read_out("```sh\ntrue\n")
