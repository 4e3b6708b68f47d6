"""The table of docs/frameworks/kills.md, and README.md's line on it: python ops/chaos/matrix_page.py

``matrix.jsonl`` has the last measurement of each row: ``matrix.py --note`` writes it there, with the commit it is of.
"""

import fcntl
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("matrix.jsonl")
PAGE, README = REPOSITORY / "docs" / "frameworks" / "kills.md", REPOSITORY / "README.md"
BEGIN, END = "<!-- measured: by ops/chaos/matrix.py -->\n", "<!-- measured: until here -->\n"
LINE = "Killed by `ops/chaos/matrix.py`: "
HEAD = """| what | version | measured at | kills | calls made / needed + in doubt | uses made / needed + in doubt |
|---|---|---|---|---|---|
"""


def measured() -> dict[str, dict[str, Any]]:
    """The last measurement of each row."""
    rows = map(json.loads, MEASURED.read_text().splitlines())
    return {row["what"]: row for row in rows}


def commit() -> str:
    """What stands here; "dirty" if more differs from it than measurements that were noted, and what is made of them."""
    git = "git", "-C", str(REPOSITORY)
    others = [f":(exclude){one.relative_to(REPOSITORY)}" for one in (MEASURED, PAGE, README)]
    asked = [*git, "rev-parse", "--short=8", "HEAD"], [*git, "status", "--porcelain", "-uno", "--", ".", *others]
    head, changes = (subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in asked)
    return head.strip() + ("-dirty" if changes else "")


def note(what: str, row: dict[str, Any], order: Iterable[str], at: str) -> None:
    """Write down what was measured at this commit, in place of an earlier measurement; several may be at it."""
    found = {name: row[name] for name in ("version", "kills", "calls", "uses")}
    with MEASURED.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = {**measured(), what: {"what": what, "commit": at, "on": time.strftime("%Y-%m-%d"), **found}}
        text = "".join(f"{json.dumps(rows[one])}\n" for one in order if one in rows)
        file.truncate()
        file.write(text)


def told() -> str:
    """How many rows were measured when and where."""
    rows = measured().values()
    where = Counter((row["on"], row["commit"]) for row in rows)
    days = [
        f"{sum(count for (on, _), count in where.items() if on == day)} on {day} "
        f"({', '.join(commit for (on, commit), _ in where.most_common() if on == day)})"
        for day in sorted({on for on, _ in where}, reverse=True)
    ]
    return f"{len(rows)} programs, {', '.join(days)}."


def page(text: str) -> str:
    """The page with what was measured."""
    lines = []
    for what, row in measured().items():
        calls, uses = (f"{made} / {needed} + {doubt}" for made, needed, doubt in (row["calls"], row["uses"]))
        name = what.replace("MCP ", "tools of an MCP server: ")
        where = f"{row['commit']}, {row['on']}"
        lines.append(f"| {name} | {row['version']} | {where} | {row['kills']} | {calls} | {uses} |\n")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{told()}\n\n{HEAD}{''.join(lines)}\n{END}{rest.partition(END)[2]}"


def readme(text: str) -> str:
    """The front page with where it was measured."""
    lines = text.splitlines(keepends=True)
    return "".join(f"{LINE}{told()}\n" if line.startswith(LINE) else line for line in lines)


def main() -> int:
    for file, made in ((PAGE, page), (README, readme)):
        file.write_text(made(file.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
