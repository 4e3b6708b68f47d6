"""Crew files in one process never see each other's modules, nor ours."""

import logging
import pickle
import random
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.bundles.loader import key_of, load, load_target, unload
from runner.bundles.target import parse_target
from runner.core.errors import BadCrew

pytestmark = pytest.mark.usefixtures("no_module_leaks")

Make = Callable[[str, dict[str, str]], Path]


def load_crew(root: Path, module: str = "crew"):
    return load(root, module, key=key_of(root))


SAME_NAMES = {
    "tasks.py": "WHO = {who!r}",
    "tools.py": "import config\nfrom tasks import WHO\ndef who(): return WHO, config.WHO",
    "config.py": "WHO = {who!r}",
    "providers/__init__.py": "from .base import WHO",
    "providers/base.py": "import config\nWHO = config.WHO",
    "providers/redis/__init__.py": "from ..base import WHO as who",
    "loose/thing.py": "WHO = {who!r}",
    "random.py": "WHO = {who!r}",
}


def same_names(make: Make, who: str, crew: str) -> Path:
    files = {name: text.format(who=who) for name, text in SAME_NAMES.items()}
    return make(who, {**files, "crew.py": crew})


class TestEveryWayToImport:
    """Each way, in two bundles with the same names: at import, and later inside a function."""

    WAYS = {
        "import": "import tools; got = tools.who()[0]",
        "import as": "import tools as t; got = t.who()[1]",
        "import of a submodule": "import providers.base; got = providers.base.WHO",
        "import of a submodule as": "import providers.base as b; got = b.WHO",
        "import of a package in a package": "import providers.redis; got = providers.redis.who",
        "from": "from tools import who; got = who()[0]",
        "from package import module": "from providers import base; got = base.WHO",
        "from package import its name": "from providers import WHO; got = WHO",
        "from a folder without __init__": "from loose import thing; got = thing.WHO",
        "import a folder without __init__": "import loose.thing; got = loose.thing.WHO",
        "over a name of the standard library": "import random; got = random.WHO",
        "conditional": "try:\n import no_such\nexcept ImportError:\n import tasks as no_such\ngot = no_such.WHO",
        "import_module": "import importlib; got = importlib.import_module('tools').who()[0]",
        "import_module of a submodule": "from importlib import import_module as i; got = i('providers.base').WHO",
        "import_module, relative": "import importlib; got = importlib.import_module('.redis', 'providers').who",
        "import_module, keywords": "import importlib as i; got = i.import_module(name='tools', package=None).who()[0]",
        "__import__": "got = __import__('providers.base').base.WHO",
        "importlib.__import__": "import importlib; got = importlib.__import__('tasks').WHO",
        "find_spec": "import importlib.util as u; s = u.find_spec('tasks'); got = s.loader.load_module().WHO",
        "resources": "import importlib.resources as r; got = (r.files('loose') / 'thing.py').read_text()[7:-1]",
        "resources of a package": "from importlib import resources as r; got = r.files('providers').name and __name__",
        "exec": "space = {}; exec('import tasks', space); got = space['tasks'].WHO",
        "eval": "got = eval('__import__(\"tasks\").WHO')",
        "resolve_name": "import pkgutil; got = pkgutil.resolve_name('tools:who')()[0]",
    }

    @pytest.mark.filterwarnings("ignore:the load_module")
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("when", ["at import", "later"])
    def test_means_the_bundles_own(self, make, way, when):
        code = self.WAYS[way]
        body = textwrap.indent(code, "    ")
        crew = code if when == "at import" else f"def late():\n{body}\n    return got"
        modules = {who: load_crew(same_names(make, who, crew)) for who in ("one", "two")}
        for who, module in modules.items():
            got = module.got if when == "at import" else module.late()
            assert got == (module.__name__ if way == "resources of a package" else who)

    def test_star(self, make):
        one, two = (load_crew(same_names(make, who, "from tools import *")) for who in ("one", "two"))
        assert (one.who(), two.who()) == (("one", "one"), ("two", "two"))

    def test_what_the_bundle_lacks_comes_from_the_process(self, make):
        crew = load_crew(make("one", {"crew.py": "import json, logging.handlers, pydantic, os.path as path"}))
        assert crew.json is sys.modules["json"]
        assert crew.logging is logging
        assert crew.pydantic is sys.modules["pydantic"]

    def test_the_standard_library_does_not_see_the_bundle(self, make):
        # heapq-like modules of ours that import a name the bundle also has must not get the bundle's
        crew = load_crew(make("one", {"crew.py": "import tempfile, random", "random.py": "WHO = 'bundle'"}))
        assert crew.random.WHO == "bundle"
        assert crew.tempfile.__name__ == "tempfile"
        assert sys.modules["random"] is random
        assert not hasattr(random, "WHO")

    def test_runner_is_always_ours(self, make):
        files = {
            "runner.py": "raise RuntimeError",
            "crew.py": "import runner.errors\nfrom runner.core.errors import BadCrew",
        }
        crew = load_crew(make("one", files))
        assert crew.BadCrew is BadCrew

    def test_a_crew_file_may_be_called_runner(self, make):
        root = make("one", {"runner.py": "from runner.core.errors import BadCrew as crew"})
        assert load_crew(root, "runner").crew is BadCrew

    def test_built_in_names_cannot_be_taken(self, make):
        files = {"time.py": "raise RuntimeError", "os.py": "raise RuntimeError", "crew.py": "import time, os, sys"}
        assert load_crew(make("one", files)).time is sys.modules["time"]

    def test_a_data_folder_does_not_hide_a_library(self, make):
        crew = load_crew(
            make("one", {"pydantic/models.yaml": "", "json/x.json": "", "crew.py": "import pydantic, json"})
        )
        assert crew.pydantic is sys.modules["pydantic"]
        assert crew.json is sys.modules["json"]

    def test_the_folder_this_process_runs_in_does_not_count(self, make, tmp_path, monkeypatch):
        root = make("one", {"helpers/x.py": "WHO = 'one'", "crew.py": "import helpers.x as x"})
        make("cwd", {"helpers/__init__.py": "", "helpers/x.py": "WHO = 'cwd'"})
        monkeypatch.chdir(tmp_path / "cwd")
        monkeypatch.syspath_prepend(str(tmp_path / "cwd"))
        assert load_crew(root).x.WHO == "one"

    def test_only_its_own_package_where_the_root_holds_more(self, make):
        root = make(
            "one", {"team/__init__.py": "", "team/crew.py": "import team.a as a", "team/a.py": "", "yaml.py": ""}
        )
        (root / "team/crew.py").write_text("import team.a as a\ntry:\n import yaml\nexcept ImportError:\n yaml = None")
        crew = load_target(parse_target(str(root / "team/crew.py")))
        assert crew.a.__file__ == str(root / "team/a.py")
        assert getattr(crew.yaml, "__file__", "") != str(root / "yaml.py")
        assert load_target(parse_target(str(root / "team/crew.py"))) is crew

    def test_a_lib_folder_that_the_code_adds_to_the_path(self, make):
        crew = """
            import os, sys
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            sys.path.append(os.path.join(os.path.dirname(__file__), "lib"))
            import helper
            def late():
                import late_helper
                return late_helper.WHO
        """
        files = {"lib/helper.py": "WHO = {0!r}", "lib/late_helper.py": "WHO = {0!r}"}
        for who in ("one", "two"):
            module = load_crew(make(who, {"crew.py": crew} | {n: t.format(who) for n, t in files.items()}))
            assert (module.helper.WHO, module.late()) == (who, who)

    @pytest.mark.parametrize(
        "environment", ["pyvenv.cfg", ".venv/pyvenv.cfg", "deep/er/pyvenv.cfg", "env/conda-meta/x"]
    )
    def test_what_is_installed_in_its_folder_is_none_of_its_modules(self, make, environment, monkeypatch):
        home = environment.replace("conda-meta/x", "pyvenv.cfg").removesuffix("pyvenv.cfg")
        libraries = f"{home}lib/python3.11/site-packages"
        files = {f"{libraries}/library_here/__init__.py": "from . import part", f"{libraries}/library_here/part.py": ""}
        crew = "import helper, library_here, json"
        root = make("one", {**files, environment: "", "lib/helper.py": "", "crew.py": crew})
        added = [str(root / libraries), str(root / libraries).replace("site-packages", "lib-dynload")]
        monkeypatch.setattr(sys, "path", [str(root / "lib"), *added, *sys.path])
        crew = load_crew(root)
        try:
            assert crew.library_here is sys.modules["library_here"]
            assert crew.library_here.part is sys.modules["library_here.part"]
            assert crew.helper.__name__.startswith("_crew_")
            assert [one for one in added if one in sys.path] == added
        finally:
            for name in ("library_here", "library_here.part"):
                sys.modules.pop(name)


class TestModulesAreRealModules:
    def test_names_files_and_specs(self, make):
        root = make("one", {"crew.py": "import pkg.sub as sub", "pkg/__init__.py": "", "pkg/sub.py": ""})
        crew = load_crew(root)
        assert sys.modules[crew.__name__] is crew
        assert crew.__file__ == str(root / "crew.py")
        assert crew.sub.__package__ == crew.sub.__spec__.parent == crew.__package__ + ".pkg"
        assert crew.__spec__.name == crew.__name__ == f"_crew_{key_of(root)[:16]}.crew"
        assert crew.__spec__.cached is None or not Path(crew.__spec__.cached).exists()
        assert not list(root.rglob("__pycache__"))

    def test_dataclasses_pydantic_typing_enum_pickle(self, make):
        models = """
            from __future__ import annotations
            import dataclasses, enum, typing
            from pydantic import BaseModel

            class Colour(enum.Enum):
                RED = "red"

            @dataclasses.dataclass
            class Point:
                x: int
                to: typing.Optional[Point] = None
                kind: typing.ClassVar[str] = "{who}"

            class Pair(typing.NamedTuple):
                a: Point

            class Report(BaseModel):
                colour: Colour
                children: list[Report] = []
                point: Point

            def work(report: Report, *, colour: Colour = Colour.RED) -> Point: ...
        """
        for who in ("one", "two"):
            crew = "from models import *\nimport models, typing\nhints = typing.get_type_hints(models.work)"
            module = load_crew(make(who, {"models.py": models.replace("{who}", who), "crew.py": crew}))
            models_module = module.models
            report = module.Report(colour="red", children=[{"colour": "red", "point": {"x": 2}}], point={"x": 1})
            assert type(report.children[0].point) is module.Point
            assert module.hints == {"report": module.Report, "colour": module.Colour, "return": module.Point}
            assert module.Point.kind == who
            copy = pickle.loads(pickle.dumps([report, module.Point(3), module.Colour.RED, models_module.work]))
            assert copy == [report, module.Point(3), module.Colour.RED, models_module.work]
            assert list(module.Report.model_json_schema()["$defs"]) == ["Colour", "Point", "Report"]

    def test_circular_imports(self, make):
        files = {
            "a.py": "import b\nNAME = 'a'\ndef other(): return b.NAME",
            "b.py": "import a\nNAME = 'b'\ndef other(): return a.NAME",
            "pkg/__init__.py": "from . import x\nfrom .y import Y",
            "pkg/x.py": "import pkg.y as y\nX = 1",
            "pkg/y.py": "from pkg import x\nimport pkg.x\nY = 2",
            "crew.py": "import a, b, pkg\ncrew = a.other() + b.other() + str(pkg.x.X + pkg.Y)",
        }
        assert load_crew(make("one", files)).crew == "ba3"

    def test_once_per_key(self, make):
        root = make("one", {"crew.py": "import tools\ncrew = object()", "tools.py": "crew = object()"})
        crew = load_crew(root)
        assert load_crew(root) is crew
        assert load_crew(root, "tools") is crew.tools
        assert load(root, "crew", key="a" * 64) is not crew

    def test_importlib_still_looks_like_importlib(self, make):
        code = "import importlib, importlib.util, importlib.metadata\nfrom importlib import *\nm = importlib"
        module = load_crew(make("one", {"crew.py": code})).m
        assert module.import_module("json") is sys.modules["json"]
        assert module.util.find_spec("json").name == "json"
        assert module.util.find_spec("no_such_module") is None
        assert module.metadata is sys.modules["importlib.metadata"]
        assert "reload" in dir(module)
        assert module.__name__ == "importlib"
        with pytest.raises(AttributeError):
            _ = module.nothing

    def test_code_that_outlives_its_bundle_still_imports(self, make):
        root = make("one", {"crew.py": "def late():\n import tools\n return tools.X", "tools.py": "X = 1"})
        late = load_crew(root).late
        assert unload(key_of(root))
        assert late() == 1


class TestThreads:
    def test_many_bundles_at_once(self, make):
        crew = "import tools, providers.redis\ndef late():\n import loose.thing as t, random\n return t.WHO, random.WHO"
        roots = {f"b{n}": same_names(make, f"b{n}", crew) for n in range(6)}
        self.at_once([lambda w=w, r=r: self.check(w, load_crew(r)) for w, r in roots.items() for _ in range(2)])

    @staticmethod
    def check(who: str, crew) -> None:
        assert crew.tools.who() == (who, who)
        assert crew.providers.redis.who == who
        assert crew.late() == (who, who)

    def test_one_bundle_in_many_threads_is_imported_once(self, make):
        root = make("one", {"crew.py": "import slow\ncrew = slow.crew", "slow.py": SLOW})
        found: list[object] = []
        self.at_once([lambda: found.append(load_crew(root).crew)] * 6)
        assert len(found) == 6
        assert len(set(map(id, found))) == 1

    def test_a_failure_in_many_threads_fails_in_each(self, make):
        root = make("one", {"crew.py": "import slow\nraise ValueError('no')", "slow.py": SLOW})
        failures: list[str] = []

        def fail() -> None:
            with pytest.raises(BadCrew) as caught:
                load_crew(root)
            failures.append(str(caught.value))

        self.at_once([fail] * 4)
        assert failures == ["crew.py:2: ValueError: no"] * 4

    @staticmethod
    def at_once(works: list[Callable[[], object]]) -> None:
        start, errors = threading.Barrier(len(works)), []

        def run(work: Callable[[], object]) -> None:
            try:
                start.wait(5)
                work()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert errors == []


SLOW = "import threading\nthreading.Event().wait(0.02)\ncrew = object()"  # gives other threads their turn
