"""Source is parsed in any thread, by one at a time: up to Python 3.11 two at once make each other fail now and then."""

import ast
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner.bundles import syntax
from runner.bundles.target import parse_target

PACKAGE = Path(__file__).parents[3] / "runner"


def test_several_threads_find_crews_and_one_at_a_time_parses(tmp_path, monkeypatch):
    (tmp_path / "crew.py").write_text("from runner import Crew\n\ncrew = Crew(tasks=[])\n")
    inside, met, parse = threading.Semaphore(), [], ast.parse

    def watched(*arguments: object) -> ast.Module:
        met.append(inside.acquire(blocking=False))
        time.sleep(0.002)  # others may run, as in a finalizer while garbage is collected
        try:
            return parse(*arguments)
        finally:
            inside.release()

    monkeypatch.setattr(syntax.ast, "parse", watched)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: parse_target(str(tmp_path)), range(20)))
    assert len(met) >= 20
    assert all(met)


def test_nobody_parses_beside_it():
    users = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"\bast\.parse\(", path.read_text())]
    assert users == ["syntax.py"]
