"""The pieces of examples/stdlib_audit on small sources. The whole run stands among the command-line tests."""

import ast
import importlib
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "stdlib_audit"
MODULES = [path.stem for path in EXAMPLE.glob("*.py") if path.stem != "crew"]

FILES = {
    "shapes/__init__.py": '"""Shapes."""\nfrom .area import circle\n',
    "shapes/area.py": '''"""Areas."""
import math
import os  # never used

from shapes import colour


def circle(radius: float, unit="m") -> float:
    """The area of a circle."""
    def square(x):
        return x * x
    unused = 1
    for value in [radius]:
        if value > 0 and unit:
            return math.pi * square(value)
        elif value < 0:
            raise ValueError
    # radius = 2
    # TODO: ellipses
    return 0


def _private(things=[]):
    try:
        import json
    except:
        pass
''',
    "shapes/colour.py": "from . import area\nimport no_such_module\n\nclass Colour:\n    def red(self, bright): pass\n",
    "latin.py": "# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n",
    "empty.py": "",
    "test/test_area.py": "import unittest\nfrom shapes.area import circle\n\ndef test(): pass\n",
    "test/bad_python2.py": "print 'no'\n",
    "test/bad_coding.py": "# coding: no-such\n",
    "test/bad_place.py": "return 1\n",
    "site-packages/other.py": "x = 1\n",
    "__pycache__/left.py": "x = 1\n",
}
BODY = "\n".join(f"    total += {number}" for number in range(12))


@pytest.fixture(autouse=True)
def example(monkeypatch):
    """The example's modules as it imports them: by their bare names, from its folder. Nothing stays imported."""
    known = {name: sys.modules.pop(name, None) for name in MODULES}
    monkeypatch.syspath_prepend(EXAMPLE)
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name, module in known.items():
        sys.modules.pop(name, None)
        if module:
            sys.modules[name] = module


@pytest.fixture
def tree(tmp_path):
    for path, text in FILES.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode("latin-1"))
    return tmp_path


class FakeContext:
    """What a task is given, with every step counted; steps recorded before are not done again."""

    def __init__(self, name, outputs, inputs, recorded=None):
        self.task = SimpleNamespace(name=name)
        self.inputs = inputs
        self.outputs = {key: SimpleNamespace(raw=value, json_dict=as_dict(value)) for key, value in outputs.items()}
        self.recorded = {} if recorded is None else recorded
        self.done = []
        self.progressed = []

    def step(self, name, fn, *args):
        assert name not in self.done, "two steps of one name"
        self.done.append(name)
        if name not in self.recorded:
            self.recorded[name] = json.dumps(fn(*args))
        return json.loads(self.recorded[name])

    def log(self, text):
        assert isinstance(text, str)

    def progress(self, done, total, text):
        self.progressed.append((done, total))


def as_dict(text):
    return json.loads(text) if text.startswith("{") else None


def run_all(audit, inputs):
    outputs = {}
    shares = [(name, audit.analyse) for name in audit.SHARES]
    rest = [(name, getattr(audit, name)) for name in ("rank", "plot", "report")]
    for name, fn in [("collect", audit.collect), *shares, *rest]:
        value = fn(FakeContext(name, outputs, inputs))
        outputs[name] = value if isinstance(value, str) else json.dumps(value)
    return outputs


# --- the tasks ---


def test_all_tasks_in_order_give_a_report_and_a_picture(example, tree):
    outputs = run_all(example.audit, {"root": str(tree)})
    ranks = json.loads(outputs["rank"])
    assert ranks["library"]["modules"] == 5
    assert ranks["tests"]["modules"] == 1
    assert [path for path, _ in ranks["skipped"]] == [
        "test/bad_coding.py",
        "test/bad_place.py",
        "test/bad_python2.py",
    ]
    assert ranks["cycles"] == [["shapes.area", "shapes.colour"]]
    report = outputs["report"]
    assert report.startswith(f"# {tree}, audited")
    assert "(stdlib_audit.svg)" in report
    assert "`shapes.area.circle`" in report
    assert "3 files did not compile" in report
    ElementTree.fromstring(outputs["plot"])


def test_the_result_is_the_same_each_time(example, tree):
    inputs = {"root": str(tree)}
    assert run_all(example.audit, inputs) == run_all(example.audit, inputs)


def test_test_suites_can_be_left_out(example, tree):
    outputs = run_all(example.audit, {"root": str(tree), "tests": "no"})
    assert json.loads(outputs["rank"])["tests"]["modules"] == 0
    assert "No test suites" in outputs["report"]


def test_a_library_without_sources_is_said_and_not_fatal(example, tmp_path):
    outputs = run_all(example.audit, {"root": str(tmp_path / "python311.zip")})
    assert "no source files" in outputs["report"]
    ElementTree.fromstring(outputs["plot"])


def test_a_resumed_share_measures_only_what_was_not_recorded(example, tree, monkeypatch):
    monkeypatch.setattr(example.sources, "CHUNK_BYTES", 1)  # a step for each file
    monkeypatch.setattr(example.audit, "SHARES", ["analyse_1"])
    inputs = {"root": str(tree)}
    outputs = {"collect": json.dumps(example.audit.collect(FakeContext("collect", {}, inputs)))}
    first = FakeContext("analyse_1", outputs, inputs)
    whole = example.audit.analyse(first)
    assert len(first.done) == 9
    assert first.progressed[-1] == (9, 9)
    half = dict(list(first.recorded.items())[:4])
    measured = []
    measure = example.metrics.measure_files
    monkeypatch.setattr(example.audit, "measure_files", lambda *args: measured.append(args) or measure(*args))
    assert example.audit.analyse(FakeContext("analyse_1", outputs, inputs, half)) == whole
    assert len(measured) == 5


def test_a_worker_with_another_python_refuses(example, tree, monkeypatch):
    inputs = {"root": str(tree)}
    outputs = {"collect": json.dumps(example.audit.collect(FakeContext("collect", {}, inputs)))}
    monkeypatch.setattr(example.audit, "interpreter", lambda: "CPython 2.7.18")
    with pytest.raises(RuntimeError, match=r"this worker runs CPython 2\.7\.18"):
        example.audit.analyse(FakeContext("analyse_1", outputs, inputs))


# --- sources ---


def test_sources_leave_out_what_is_not_the_library(example, tree):
    (tree / "gone.py").symlink_to(tree / "nowhere.py")
    paths = [source.path for source in example.sources.find_sources(tree)]
    assert "shapes/area.py" in paths
    assert not [path for path in paths if "other" in path or "left" in path or "gone" in path]


def test_names_of_modules(example):
    name = example.sources.module_name
    assert [name("json/decoder.py"), name("json/__init__.py"), name("abc.py")] == ["json.decoder", "json", "abc"]
    assert name("test/data/a.b.py") == "test.data.a.b"


def test_shares_hold_everything_once_and_are_even(example):
    source = example.sources.Source
    sources = [source(f"m{number:03}.py", 10_000 + number * 997 % 70_000) for number in range(120)]
    chunks = example.sources.into_chunks(sources)
    shares = example.sources.into_shares(chunks, ["a", "b", "c"])
    dealt = [path for share in shares.values() for chunk in share for path in chunk]
    assert sorted(dealt) == [source.path for source in sources]
    size = {source.path: source.size for source in sources}
    loads = [sum(size[path] for chunk in share for path in chunk) for share in shares.values()]
    assert max(loads) - min(loads) <= example.sources.CHUNK_BYTES
    assert all(sum(source.size for source in chunk) <= example.sources.CHUNK_BYTES for chunk in chunks)


def test_more_shares_than_files(example):
    shares = example.sources.into_shares([[example.sources.Source("a.py", 0)]], ["a", "b"])
    assert shares == {"a": [["a.py"]], "b": []}


# --- one file ---


def measure(example, text, path="pkg/mod.py"):
    return example.metrics.measure(path, text.encode())[0]


def test_one_file_is_measured(example):
    area = measure(example, FILES["shapes/area.py"], "shapes/area.py")
    assert (area["functions"], area["public"], area["documented"]) == (3, 2, 2)
    assert (area["lines"], area["docs"], area["comments"], area["markers"], area["dead"]) == (27, 2, 2, 1, 1)
    assert area["lines"] == area["code"] + area["docs"] + area["comments"] + area["blank"]
    assert area["worst"][0][:4] == ["circle", 8, 13, 5]  # for, if, and, elif
    assert area["worst"][0][4] == 2  # an elif is no deeper than its if
    assert (area["slots"], area["annotated"]) == (7, 2)
    assert area["imports"] == ["math", "os", "shapes.colour"]
    assert area["late"] == ["json"]
    assert area["smells"] == {
        "bare excepts": 1,
        "mutable defaults": 1,
        "unused imports": 2,  # os, colour
        "locals never read": 1,
    }


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("return a if b else c", 2),
        ("return [x for x in a if x if b]", 4),
        ("return a and b or c", 3),
        ("while a:\n  try: b\n  except E: c\n  except F: d", 4),
        ("match a:\n  case 1: b\n  case 2: c", 3),
        ("def inner():\n  if a: b", 1),
    ],
)
def test_complexity(example, body, complexity):
    text = "def f():\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    found = {function[0]: function[3] for function in measure(example, text)["worst"]}
    assert found["f"] == complexity


@pytest.mark.parametrize(
    ("path", "line", "imported"),
    [
        ("a/b.py", "import x.y as z", ["x.y"]),
        ("a/b.py", "from . import c", ["a.c"]),
        ("a/b.py", "from .c import d, e", ["a.c.d", "a.c.e"]),
        ("a/b.py", "from __future__ import annotations", []),
        ("a/__init__.py", "from .c import *", ["a.c.*"]),
        ("a/b/__init__.py", "from ..c import d", ["a.c.d"]),
    ],
)
def test_imports_are_resolved_to_full_names(example, path, line, imported):
    assert measure(example, line, path)["imports"] == imported


def test_what_runs_as_a_script_is_not_imported_with_the_module(example):
    module = measure(example, "if __name__ == '__main__':\n    import doctest\n")
    assert (module["imports"], module["late"]) == ([], ["doctest"])


def test_a_name_read_by_an_inner_function_is_read(example):
    text = "def f():\n    seen = 1\n    _meant = 2\n    def g():\n        return seen\n    return g\n"
    assert measure(example, text)["smells"]["locals never read"] == 0


@pytest.mark.parametrize(
    ("comment", "code"),
    [
        ("# x = 1", True),
        ("# print(x)", True),
        ("# return None", True),
        ("# import os", True),
        ("# from here on it is easy", False),
        ("# see RFC 2822 (section 3)", False),
        ("# x is a name", False),
        ("#", False),
        ("# note: this", False),
    ],
)
def test_commented_out_code(example, comment, code):
    assert example.lines.is_code(comment) is code


def test_a_very_deep_expression_stops_nothing(example, tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "long.py").write_text("x = " + " + ".join(["1"] * 50_000))
    (tmp_path / "nul.py").write_bytes(b"x = 1\0")
    (tmp_path / "good.py").write_text("x = 1")
    measured = example.metrics.measure_files(str(tmp_path), ["deep.py", "long.py", "nul.py", "good.py", "removed.py"])
    assert "good" in [module["module"] for module in measured["modules"]]
    assert {"deep.py", "nul.py", "removed.py"} <= {path for path, _ in measured["skipped"]}


@pytest.mark.filterwarnings("error")
def test_warnings_of_the_compiler_are_not_ours(example, tmp_path):
    (tmp_path / "old.py").write_text("x = '\\d'\nif x is 1: pass\n")
    assert example.metrics.measure_files(str(tmp_path), ["old.py"])["skipped"] == []


def test_copied_bodies_are_found_whatever_they_are_called(example):
    one = measure(example, f'def f(total):\n    """One."""\n{BODY}\n', "a.py")
    other = measure(example, f"class K:\n  @staticmethod\n  def g(total):\n    # Two.\n{BODY}\n", "b.py")
    third = measure(example, f"def h(total):\n{BODY}\n    return total\n", "c.py")
    found = example.ranking.copies([one, other, third])
    assert (found["bodies"], found["spare_lines"]) == (1, 12)
    assert found["largest"] == [[12, ["a.f", "b.K.g"]]]


def test_opcodes_are_counted_in_all_functions(example):
    flat = example.bytecode.count_opcodes(compile("x = 1", "m", "exec"))
    nested = example.bytecode.count_opcodes(compile("def f():\n  def g():\n    global x\n    x = 1", "m", "exec"))
    assert flat["STORE_NAME"] == 1
    assert nested["STORE_GLOBAL"] == 1
    assert "CACHE" not in nested


# --- all files ---


def test_resolving_finds_the_module_behind_a_name(example):
    known = {"json", "json.decoder"}
    assert example.graph.resolve(["json.decoder.JSONDecoder", "json.loads", "sys.path", "numpy.array"], known) == [
        "json",
        "json.decoder",
        "sys",
    ]


def test_pagerank_sums_to_one_and_favours_the_hub(example):
    rank = example.graph.pagerank({"a": ["hub"], "b": ["hub", "a"], "c": ["hub"], "alone": []})
    assert sum(rank.values()) == pytest.approx(1)
    assert max(rank, key=rank.__getitem__) == "hub"
    assert example.graph.pagerank({}) == {}


def test_cycles_and_reach(example):
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "x": ["y"], "y": ["x"], "self": ["self"]}
    assert example.graph.cycles(graph) == [["a", "b", "c"], ["x", "y"]]
    assert example.graph.reach(graph, "d") == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 10), (2, 20), (3, 30)], 1),
        ([(1, 3), (2, 2), (3, 1)], -1),
        ([(1, 1), (1, 1), (1, 1)], None),
        ([(1, 1)], None),
    ],
)
def test_correlation(example, pairs, expected):
    assert example.ranking.correlation(pairs) == expected


# --- what is shown ---


def test_bars(example):
    assert example.chart.bars([("one", 8, "8"), ("three", 1, "1")], width=2).split("\n") == [
        "one    ██  8",
        "three  ▎   1",
    ]
    assert example.chart.bars([]) == ""


def test_names_in_the_plot_do_not_overlap(example):
    packages = [
        {
            "package": f"package<{number}>",
            "code": 100 + number * 37 % 900,
            "functions": 10 + number,
            "complexity": 1 + number * 7 % 30 / 5,
            "public": number % 3,
            "documented": 0,
        }
        for number in range(80)
    ]
    svg = example.chart.scatter({"title": "T & T", "python": "CPython 3.x", "packages": packages})
    root = ElementTree.fromstring(svg)
    names = [node for node in root.iter("{http://www.w3.org/2000/svg}text") if node.get("paint-order")]
    assert len(names) > 10
    boxes = []
    for node in names:
        wide = len(node.text) * example.chart.LABEL_SIZE * 0.6
        x, y = float(node.get("x")), float(node.get("y"))
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[node.get("text-anchor")]
        boxes.append(example.chart.Box(left + 0.1, y - 10, left + wide - 0.1, y + 3))
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.meets(b)]


def test_the_example_imports_nothing_but_the_library_and_itself(example):
    allowed = sys.stdlib_module_names | set(MODULES) | {"runner"}
    for path in EXAMPLE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name
