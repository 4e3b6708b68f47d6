"""Options and arguments that are empty, or no text: one clear line and exit code 2, and nothing is stored."""

import click
import pytest

from runner.cli import cli as commands
from runner.client import Client
from runner.core.errors import NotFound

GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""

#: What has a reader of its own, which says more.
READ_ELSEWHERE = ("--input", "--edit", "--basic-auth", "--loglevel", "--host", "--worker")
MAY_BE_EMPTY = ("--text", "--reject", "--reason")  #: an answer


def options_of_text() -> list[tuple[str, ...]]:
    """Each option of each verb that takes text of ours, in the words that name it."""
    found: list[tuple[str, ...]] = []

    def look(command: click.Command, words: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                look(inner, (*words, name))
            return
        ours = [one for one in command.params if isinstance(one, click.Option) and one.type.name == "text"]
        found.extend((*words, one.opts[0]) for one in ours if one.opts[0] not in READ_ELSEWHERE)

    look(commands, ())
    return found


@pytest.mark.parametrize("words", options_of_text(), ids=" ".join)
def test_an_option_that_is_no_text(words, refused):
    verb, option = words[:-1], words[-1]
    line = refused(*verb, option, "\udcff")
    assert line.startswith(f"invalid value for '{option}': '\\udcff' is not UTF-8 text"), line
    if option not in MAY_BE_EMPTY:
        assert refused(*verb, option, "").startswith(f"invalid value for '{option}': it is empty")


@pytest.mark.parametrize("words", options_of_text(), ids=" ".join)
def test_an_option_that_is_left_out_is_taken(words):
    command: click.Command = commands
    for name in words[:-1]:
        found = command.get_command(click.Context(command), name) if isinstance(command, click.Group) else None
        assert found is not None
        command = found
    [option] = [one for one in command.params if words[-1] in one.opts]
    option.handle_parse_result(click.Context(command), {}, [])


@pytest.mark.parametrize("verb", ["show", "wait", "events", "resume", "cancel", "files", "fork"])
def test_a_run_that_is_no_text(verb, refused):
    assert "is not UTF-8 text" in refused(verb, "\udcff")


def test_a_run_that_is_no_text_for_a_client(server):
    with Client(server.url) as client, pytest.raises(NotFound, match=r"^there is no run \\udcff"):
        client.run("\udcff")


def test_a_place_with_a_name_that_no_file_has(refused):
    assert refused("checkpoint", "list", "x" * 5000).startswith("there is no directory, file or run xxx")


@pytest.mark.parametrize("place", ["htp://a:sesame77@h", "amqp://a:sesame77@h/0", "redis://a:sesame77@h:99999"])
@pytest.mark.parametrize("verb", [["checkpoint", "list"], ["checkpoint", "resume"], ["show"], ["wait"]])
def test_a_password_in_what_was_typed_is_not_repeated(verb, place, refused):
    assert "sesame77" not in refused(*verb, place)


@pytest.mark.parametrize("url", ["http://h", "redis://h:99999", "redis://h:x", "amqp://h:x"])
def test_a_broker_that_is_none(url, refused, write_crew):
    assert "URL" in refused("submit", write_crew(GOOD), "--broker-url", url)
