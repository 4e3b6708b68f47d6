"""An interpreter with the seed, in place of one without."""

import os
import subprocess
import sys

import pytest

from runner.core import hash_seed

pytestmark = pytest.mark.slow

BEGINS = "import os, sys; from runner.core import hash_seed; print(os.getpid(), end=' ', flush=True); "
SAYS = "print(hash('a'), *sys.argv)"
RESTARTED = f"{BEGINS} hash_seed.fix(); {SAYS}"


def said(seed: str | None, *options: str, code: str = RESTARTED) -> int:
    environment = {name: value for name, value in os.environ.items() if name != hash_seed.NAME}
    environment |= {} if seed is None else {hash_seed.NAME: seed}
    command = [sys.executable, *options, "-c", code, "an_argument"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        *pids, number, first, argument = process.stdout.read().split()
        assert set(pids) == {str(process.pid)}
    assert (first, argument) == ("-c", "an_argument")
    return int(number)


@pytest.mark.parametrize("seed", [None, "", "0"])
def test_it_is_the_same_process_with_the_same_words(seed: str | None) -> None:
    assert said(seed) == said("0", code=BEGINS + SAYS)


def test_the_operator_s_is_kept() -> None:
    assert said("7") == said("7", code=BEGINS + SAYS) != said("0")
    assert hash_seed.with_seed({hash_seed.NAME: "random"}) == {hash_seed.NAME: "random"}


def test_an_interpreter_that_reads_no_variables_is_restarted_once() -> None:
    said(None, "-E")


OWN_WORDS = f"{BEGINS} sys.argv[1:] = ['submit']; print(hash_seed.fix())"


@pytest.mark.parametrize(("words", "stdin"), [(["-c", OWN_WORDS], ""), (["-"], f"{BEGINS} print(hash_seed.fix())")])
def test_a_program_that_calls_the_command_itself_is_not_begun_twice(words: list[str], stdin: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != hash_seed.NAME}
    ended = subprocess.run([sys.executable, *words], input=stdin, env=environment, capture_output=True, text=True)
    assert ended.stdout.split()[1:] == ["False"], ended.stderr
