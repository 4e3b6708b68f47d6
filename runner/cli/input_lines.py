"""The file of ``runner submit --each``: the inputs of a run in each line. It is read twice, and never held whole."""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from runner.cli.options import json_of, text_of
from runner.client import Prepared
from runner.client.batch import Numbered
from runner.client.ids import batch_id_for
from runner.core.errors import BadInput
from runner.core.inputs import given_as_json, stored
from runner.core.plain_text import of_class


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """Return the file of inputs, to be read twice; ``-`` is stdin. Raises `BadInput`.

    Stdin, and what can be read only once, such as a pipe, is copied first.
    """
    with ExitStack() as stack:
        try:
            source = sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise BadInput(f"--each {file} cannot be read: {error.strerror}") from None
        if file == "-" or not source.seekable():
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, copy)
            source = copy
        yield source


def lines(source: IO[bytes], name: str, common: Mapping[str, Any]) -> Iterator[Numbered]:
    """The inputs of each line, over those that all share, with the number of the line. Raises `BadInput`."""
    source.seek(0)
    for number, line in enumerate(source, 1):
        where = f"--each {name}, line {number}"
        if not (text := text_of(line, where).strip()):
            continue
        found = json_of(text, where)
        if not isinstance(found, dict):
            raise BadInput(f"{where} must hold a JSON object, not {of_class(found)}")
        yield number, {**common, **found}


def first(source: IO[bytes], name: str, common: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of the first run: what a file runs can depend on them. Raises `BadInput`."""
    for number, given in lines(source, name, common):
        with _named(name, number):
            return given_as_json(given)
    return common


def check(source: IO[bytes], name: str, common: Mapping[str, Any], prepared: Prepared) -> tuple[int, str]:
    """Check all lines before anything is stored. Returns how many there are, and a hash of them.

    Raises `BadInput` with the number of the first line that is wrong.
    """
    many, digest = 0, hashlib.sha256()
    for number, given in lines(source, name, common):
        with _named(name, number):
            values = prepared.given(given)
            prepared.refuse_missing(values)
            digest.update(f"{number} {stored(values)}\n".encode())
        many += 1
    if not many:
        raise BadInput(f"--each {name} holds no inputs: one JSON object a line")
    return many, digest.hexdigest()


@contextmanager
def _named(name: str, number: int) -> Iterator[None]:
    """What is wrong with the inputs of a line is said with its number."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"--each {name}, line {number}: {error}") from None


def id_of(prepared: Prepared, key: str | None, digest: str) -> str:
    """The id of the batch: by its key, else the same for the same code and the same inputs."""
    return batch_id_for(f"id {key}" if key is not None else f"{prepared.code} {prepared.attr} {digest}")
