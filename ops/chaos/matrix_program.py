"""What the programs of the matrix have in common: the function that looks at a thing, and dies at its first use."""

from typing import NamedTuple

DIG = """
import asyncio, os, signal


def dig(i):
    with open(@TRACE@, "a") as file:
        file.write(f"{i}\\n")
    if not @KILLS@:
        return f"part {i}"
    try:
        open(f"{@TRACE@}.{i}", "x").close()
    except FileExistsError:
        return f"part {i}"
    os.kill(os.getpid(), signal.SIGKILL)

"""
LOOK = '''
def look(i: int) -> str:
    """Looks at a thing.

    Args:
        i: The number of the thing.
    """
    return dig(i)
'''
LOOK_ASYNC = LOOK.replace("def ", "async def ", 1).replace("return", "await asyncio.sleep(0.001)\n    return")


class Row(NamedTuple):
    """One way in which one framework is used."""

    place: str
    """The environment that has it."""
    package: str
    """Whose version the table tells."""
    code: str
    last: str = ""
    """The tool by which its model ends."""
