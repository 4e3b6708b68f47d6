"""Counts the instructions that a module compiles to."""

import dis
from collections import Counter
from types import CodeType

# What the interpreter keeps for itself between the instructions that stand for what somebody wrote.
NO_WORK = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME"}


def count_opcodes(module: CodeType) -> Counter[str]:
    """How often each instruction stands in a module and all functions in it."""
    numbers: Counter[int] = Counter()
    codes = [module]
    while codes:
        code = codes.pop()
        numbers.update(code.co_code[::2])  # every other byte is an argument
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    named = {dis.opname[number]: count for number, count in sorted(numbers.items())}
    return Counter({name: count for name, count in named.items() if name not in NO_WORK})
