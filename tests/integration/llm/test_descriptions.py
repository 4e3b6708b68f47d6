"""Requests are compared without the indentation in descriptions, which depends on the version of Python."""

import inspect
import json
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from runner.llm.recording import descriptions, wire

DOC = """Look something up.

    In the archive:
        the oldest first.
    """
URL = "https://models.example/v1/chat/completions"


def digest(body: dict[str, Any], recorded: Any = lambda _: False, **form: Any) -> str:
    found = wire.request("POST", URL, json.dumps({"model": "gpt", **body}, **form).encode(), recorded)
    assert found is not None
    return found.digest


def asks(doc: str, said: str = "Look.") -> dict[str, Any]:
    """A request of LangChain, with a tool whose docstring is compiled to this."""

    def look(what: str) -> str:
        return what

    look.__doc__ = doc
    tool = StructuredTool.from_function(look)
    return {"messages": [{"role": "user", "content": said}], "tools": [convert_to_openai_tool(tool)]}


@pytest.mark.parametrize("form", [{}, {"separators": (",", ":")}], ids=["spaced", "tight"])
def test_a_docstring_s_indentation_does_not_matter(form: Any) -> None:
    before, since = asks(DOC), asks(f"{inspect.cleandoc(DOC)}\n")  # as Python 3.13 compiles it
    assert before != since
    assert digest(before, **form) == digest(since, **form)
    # But each of its words does
    assert digest(asks(DOC.replace("oldest", "newest")), **form) != digest(before, **form)


def test_the_indentation_of_what_is_said_matters() -> None:
    one, other = asks(DOC, "def f():\n    pass"), asks(DOC, "def f():\npass")
    assert digest(one) != digest(other)
    quoted = json.dumps({"description": "a\n    b"})
    assert digest(asks(DOC, quoted)) != digest(asks(DOC, quoted.replace("    ", "")))


def test_a_request_without_such_lines_is_the_same_object() -> None:
    for text in (b"", b'{"description": "a', b'{"description": "a b"}', b'{"content": "a\\n  b"}'):
        assert descriptions.without_indentation(text) is text


def test_a_record_of_a_version_that_compared_the_indentation_is_found() -> None:
    linked = {**asks(DOC), "prompt_cache_key": "agents-sdk:run:0123456789"}
    for body, as_it_was in ((asks(DOC), bytes), (linked, wire.links.numbered)):
        before = wire._hash("POST", URL.encode(), as_it_was(json.dumps({"model": "gpt", **body}).encode()))
        assert digest(body, {before}.__contains__) == before != digest(body)
