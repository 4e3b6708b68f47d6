"""Loading a crew file and finding the crew in it: what is wrong with it is said in one line."""

import itertools
import sys
import textwrap
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from runner import Crew
from runner.bundles import arguments, frameworks, isolation, loader
from runner.bundles.loader import ModuleMissing, find_crew, in_use, key_of, load, unload, using
from runner.bundles.program import Program
from runner.bundles.target import parse_target
from runner.core.errors import BadCrew, BadInput, Interrupted, MissingDependency
from runner.engine import adapters

pytestmark = pytest.mark.usefixtures("no_module_leaks")


def load_crew(root: Path, module: str = "crew"):
    return load(root, module, key=key_of(root))


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("files", "says"),
        [
            ({"crew.py": "x = 1\ndef f(:\n"}, "crew.py:2: SyntaxError: invalid syntax"),
            (
                {"crew.py": "import tools", "tools.py": "y = 0\n  x = 1"},
                "tools.py:2: IndentationError: unexpected indent",
            ),
            ({"crew.py": "import a.b", "a/b.py": "1 / 0"}, "a/b.py:1: ZeroDivisionError: division by zero"),
            ({"crew.py": "\nimport json\njson.loads('x')"}, "crew.py:3: JSONDecodeError: Expecting value: line 1"),
            ({"crew.py": "raise ValueError('a\\n b')"}, "crew.py:1: ValueError: a b"),
            ({"crew.py": "raise ValueError"}, "crew.py:1: ValueError"),
            ({"crew.py": "import sys\nsys.exit(3)"}, "crew.py:2: the file exits the process when it is imported"),
            (
                {"crew.py": "from tools import x", "tools.py": ""},
                "crew.py:1: ImportError: cannot import name 'x' from 'tools'",
            ),
            (
                {"crew.py": "import tools.x", "tools.py": ""},
                "crew.py:1: no module named 'tools.x' in the folder of the file",
            ),
            ({"crew.py": "from .x import y"}, "crew.py:1: no module named 'x' in the folder of the file"),
            ({"crew.py": "import runner.nothing"}, "crew.py:1: no module named 'runner.nothing' ('runner' always"),
            ({"crew.py": "from runner.core.errors import BadCrew\nraise BadCrew('a cycle')"}, "crew.py:2: a cycle"),
            ({"crew.py": "import ast\nast.parse('x x')"}, "crew.py:2: SyntaxError: invalid syntax (<unknown>, line 1)"),
            (
                {"crew.py": "try:\n import no_such\nexcept ImportError:\n from tools import x", "tools.py": ""},
                "crew.py:4: ImportError: cannot import name 'x' from 'tools'",
            ),
            ({"other.py": ""}, "crew: no module named 'crew' in the folder of the file"),
            ({"crew.py": "raise ValueError('x' * 9999)"}, "crew.py:1: ValueError: xxx"),
        ],
    )
    def test_one_line_with_the_place(self, make, files, says):
        root = make("one", files)
        with pytest.raises(BadCrew) as caught:
            load_crew(root)
        text = str(caught.value)
        assert text.startswith(says)
        assert "\n" not in text
        assert "_crew_" not in text
        assert len(text) < 600

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("import no_such_lib", "crew.py:1: no module named 'no_such_lib'"),
            ("\nfrom no_such_lib.sub import x", "crew.py:2: no module named 'no_such_lib'"),
            (
                "try:\n import no_such_lib\nexcept ImportError as e:\n raise ImportError('install it') from e",
                "crew.py:4: no module named 'no_such_lib' (install it)",
            ),
        ],
    )
    def test_a_missing_library(self, make, code, says):
        root = make("one", {"crew.py": code})
        with pytest.raises(MissingDependency) as caught:
            load_crew(root)
        assert isinstance(caught.value, ModuleMissing)
        assert caught.value.module == "no_such_lib"
        assert str(caught.value) == says

    def test_other_errors_of_ours_pass_as_they_are(self, make):
        with pytest.raises(BadInput):
            load_crew(make("one", {"crew.py": "from runner.core.errors import BadInput\nraise BadInput('x')"}))
        with pytest.raises(Interrupted):
            load_crew(make("two", {"crew.py": "from runner.core.errors import Interrupted\nraise Interrupted('x')"}))

    def test_the_name_of_an_import_error_is_the_one_that_was_imported(self, make):
        code = """
            try:
                import tools.fast
            except ModuleNotFoundError as error:
                crew = (error.name, str(error))
        """
        crew = load_crew(make("one", {"crew.py": code, "tools/__init__.py": ""})).crew
        assert crew == ("tools.fast", "No module named 'tools.fast'")

    def test_nothing_half_imported_stays(self, make):
        root = make("one", {"crew.py": "import tools\nimport broken", "tools.py": "", "broken.py": "1 / 0"})
        with pytest.raises(BadCrew):
            load_crew(root)
        assert [name for name in sys.modules if name.startswith("_crew_")] == []
        (root / "broken.py").write_text("")
        assert load_crew(root).tools

    def test_a_failing_module_leaves_the_others_that_work(self, make):
        root = make("one", {"crew.py": "def late():\n import broken", "broken.py": "1 / 0"})
        crew = load_crew(root)
        with pytest.raises(ZeroDivisionError):
            crew.late()
        with pytest.raises(BadCrew):
            load_crew(root, "broken")
        assert load_crew(root) is crew

    def test_explains_a_late_import(self, make):
        root = make("one", {"crew.py": "def late():\n    import no_such_lib"})
        with pytest.raises(ModuleNotFoundError) as caught:
            load_crew(root).late()
        explained = loader.explain(caught.value, root)
        assert isinstance(explained, ModuleMissing)
        assert str(explained) == "crew.py:2: no module named 'no_such_lib'"


class TestTheCache:
    def test_the_oldest_go_and_those_in_use_stay(self, make, monkeypatch):
        monkeypatch.setattr(loader, "KEPT", 3)
        roots = [make(f"b{n}", {"crew.py": ""}) for n in range(6)]
        with using(key_of(roots[0])):
            first = [load_crew(root) for root in roots]
            assert load_crew(roots[0]) is first[0]
            with using(key_of(roots[4])):  # used last: the next to go is another
                pass
            load_crew(make("b6", {"crew.py": ""}))
        assert load_crew(roots[4]) is first[4]
        assert load_crew(roots[5]) is not first[5]
        assert len(isolation.spaces) == 3

    def test_unload(self, make):
        root = make("one", {"crew.py": "import tools", "tools.py": ""})
        key = key_of(root)
        assert not unload(key)
        crew = load_crew(root)
        with using(key):
            assert not unload(key)
            assert load_crew(root) is crew
        assert unload(key)
        assert load_crew(root) is not crew


class FakeCrew:
    """What the predicate takes for a crew."""


CREW = "from runner.fake import FakeCrew\n"
DECORATED = """
import functools

def deco(function):
    @functools.wraps(function)
    def inner(*args, **more):
        return function(*args, **more)
    return inner

@deco
def run():
    return FakeCrew()
"""


class TestFindCrew:
    @pytest.fixture
    def find(self, make, monkeypatch):
        fake = type(sys)("runner.fake")
        fake.FakeCrew = FakeCrew
        monkeypatch.setitem(sys.modules, "runner.fake", fake)
        monkeypatch.setattr(frameworks, "makes", lambda values: True)  # as if a plugin named the module of its crews

        def find(code: str, attr: str | None = None) -> tuple[str, object]:
            root = make("one", {"crew.py": CREW + textwrap.dedent(code)})
            return find_crew(load_crew(root), attr, lambda value: isinstance(value, FakeCrew))

        return find

    @pytest.mark.parametrize(
        ("code", "attr", "name"),
        [
            ("my_crew = FakeCrew()", None, "my_crew"),
            ("_c = FakeCrew()\nmy_crew = also = _c", None, "my_crew"),
            ("_mine = FakeCrew()", None, "_mine"),
            ("_draft = FakeCrew()\ncrew = FakeCrew()", None, "crew"),
            ("a = FakeCrew()\nb = FakeCrew()", "b", "b"),
            ("def build(): return FakeCrew()", "build", "build"),
            ("def build(size=1): return FakeCrew()", "build", "build"),
            ("class Team:\n def crew(self): return FakeCrew()", "Team.crew", "Team.crew"),
            ("class Team:\n @staticmethod\n def crew(): return FakeCrew()", "Team.crew", "Team.crew"),
            ("class Team:\n @classmethod\n def crew(cls): return FakeCrew()", "Team.crew", "Team.crew"),
            ("class Team:\n @property\n def crew(self): return FakeCrew()", "Team.crew", "Team.crew"),
            ("class Team:\n def __init__(self): self.crew = FakeCrew()", "Team.crew", "Team.crew"),
            ("class Team:\n def __init__(self): self.crew = FakeCrew()\nteam = Team()", "team.crew", "team.crew"),
            ("class Team(FakeCrew): pass", "Team", "Team"),
        ],
    )
    def test_found(self, find, code, attr, name):
        found, crew = find(code, attr)
        assert found == name
        assert isinstance(crew, FakeCrew)

    @pytest.mark.parametrize("attr", ["Team", "Team.run"])
    def test_a_class_is_made_with_the_inputs_of_its_arguments_names(self, find, attr):
        code = """
        class Team:
            def __init__(self, size, colour="red", *, day="Monday"):
                self.made = size, colour, day
            def run(self):
                crew = FakeCrew()
                crew.made = self.made
                return crew
        """
        given = arguments.Given(size="3", day="Friday", other="x")
        token = arguments.given.set(given)
        try:
            assert find(code, attr)[1].made == ("3", "red", "Friday")
        finally:
            arguments.given.reset(token)
        assert given.used == {"size", "day"}

    def test_a_function_under_a_decorator_is_found_by_its_name(self, find):
        assert isinstance(find(DECORATED, "run")[1], FakeCrew)

    @pytest.mark.parametrize(
        ("code", "attr", "says"),
        [
            ("", None, "crew.py: no crew, flow, agent or graph in it; it defines nothing"),
            (
                DECORATED,
                None,
                "crew.py: no crew, flow, agent or graph in it; it defines deco (a function), run (a function)",
            ),
            (
                "import json\nfrom json import loads\nclass Team: pass\ndef build(): pass\nx = 3",
                None,
                "crew.py: no crew, flow, agent or graph in it; it defines Team (a class), build (a function), x",
            ),
            ("a = FakeCrew()\nb = FakeCrew()", None, "crew.py has 2 crews: a, b; name one, as in crew.py:a"),
            ("my_crew = FakeCrew()", "my_crw", "crew.py has no 'my_crw'; did you mean 'my_crew'?"),
            ("my_crew = FakeCrew()", "zzz", "crew.py has no 'zzz'; it defines my_crew (a FakeCrew)"),
            ("x = 3\na = FakeCrew()", "zzz", "crew.py has no 'zzz'; it defines a (a FakeCrew), x (an int)"),
            ("a = FakeCrew()\nb = FakeCrew()\nx = 3", "x", "crew.py:x is an int, not a crew; crew.py has a, b"),
            ("class Team:\n def crew(self): ...", "Team.crow", "crew.py:Team has no 'crow'; did you mean 'crew'?"),
            ("x = 3", "x", "crew.py:x is an int, not a crew"),
            ("def build(): return 3", "build", "crew.py:build returned an int, not a crew"),
            ("async def build(): return FakeCrew()", "build", "crew.py:build returned a coroutine, not a crew"),
            ("def build(x, /): ...", "build", "crew.py:build cannot be called without arguments (missing"),
            ("def build(x, size): ...", "build", "crew.py:build takes x, size: give --input x=..."),
            ("def build(size): return size", "build", "crew.py:build returned an int, not a crew"),
            (
                "class Team:\n def __init__(self, x, /): ...\n def crew(self): ...",
                "Team.crew",
                "crew.py:Team cannot be",
            ),
            (
                "class Team:\n def __init__(self, x, size, y): ...\n def crew(self): ...",
                "Team.crew",
                "crew.py:Team is made with x, size, y: give --input x=... --input y=...",
            ),
            ("def build():\n return 1 / 0", "build", "crew.py:3: ZeroDivisionError: division by zero"),
        ],
    )
    def test_not_found(self, find, code, attr, says):
        token = arguments.given.set(arguments.Given(size=3))
        try:
            with pytest.raises(BadCrew) as caught:
                find(code, attr)
        finally:
            arguments.given.reset(token)
        assert str(caught.value).startswith(says)
        assert "\n" not in str(caught.value)


def test_from_a_bundle(make, tmp_path):
    """All three parts: what one machine packs, another imports, with its data beside it."""
    from runner.bundles.bundle import pack
    from runner.bundles.unpacking import unpack

    code = "import team.tools as t\nfrom pathlib import Path\ncrew = Path(__file__).with_name('a.yaml').read_text()"
    root = make("one", {"team/__init__.py": "", "team/crew.py": code, "team/tools.py": "", "team/a.yaml": "a: 1"})
    packed = pack(parse_target(str(root / "team/crew.py")))
    home = unpack(packed.data, packed.sha256, tmp_path / "cache")
    crew = load(home, packed.module, key=packed.sha256)
    assert crew.crew == "a: 1"
    assert crew.__name__ == f"_crew_{packed.sha256[:16]}.team.crew"


def test_wherever_a_stop_comes_the_bundle_is_let_go() -> None:
    """A signal raises it at any instruction, also between the last of the block and the call that closes it."""
    key = "f" * 64

    def held() -> None:
        with using(key):
            pass

    def ended_at(instruction: int) -> bool:
        left = itertools.count(instruction, -1)

        def trace(frame: FrameType, event: str, _: object) -> Any:
            frame.f_trace_opcodes = frame.f_code is held.__code__
            if event == "opcode" and next(left) == 0:
                raise Interrupted("here")
            return trace if frame.f_code is held.__code__ else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            held()
        except Interrupted:
            return False
        finally:
            sys.settrace(before)
        return True

    for instruction in itertools.count():
        ended = ended_at(instruction)
        assert not in_use(key), instruction
        if ended:
            assert instruction > 5
            return


class TestFunctions:
    """A function that is named, of a file without a framework."""

    PLAIN = """
        from pathlib import Path
        import parts

        def work(topic: str, many: int = 2) -> str:
            Path("done").touch()
            return parts.times(topic, many)

        async def awaited(topic):
            return topic

        class Desk:
            def work(self):
                Path("done").touch()
                return 3

        def yields():
            yield 1
    """
    PARTS = {"parts.py": "import json\ndef times(text, many):\n    return json.dumps(text * many)"}

    @pytest.fixture(autouse=True)
    def _here(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(
        ("attr", "program"),
        [
            ("work", Program("work", needs=("topic",), takes=("topic", "many"), kinds={"many": "int"})),
            ("awaited", Program("awaited", needs=("topic",), takes=("topic",))),
            ("Desk.work", Program("Desk.work")),
        ],
    )
    def test_it_is_run_as_a_function_and_is_not_called_to_be_read(self, make, attr, program, tmp_path):
        module = load_crew(make("one", {"crew.py": textwrap.dedent(self.PLAIN), **self.PARTS}))
        found = find_crew(module, attr, adapters.is_crew)
        assert found == (f"{attr}()", program)
        assert (found[1].needs, found[1].takes or ()) == (program.needs, program.takes or ())
        assert not (tmp_path / "done").exists()

    def test_one_that_yields_is_refused(self, make):
        module = load_crew(make("one", {"crew.py": textwrap.dedent(self.PLAIN), **self.PARTS}))
        with pytest.raises(
            BadCrew, match=r"^yields yields, and a run has one result: name a function that returns it$"
        ):
            find_crew(module, "yields", adapters.is_crew)

    @pytest.mark.parametrize(
        "files",
        [
            {"crew.py": "from parts import build\ndef make():\n    return build()"},
            {"crew.py": "def make():\n    import parts\n    return parts.build()"},
            {"crew.py": "def make():\n    from parts import build\n    return build()"},
            {"crew.py": "import runner\ndef make():\n    return runner.Crew(tasks=[runner.Task(name='a', run=print)])"},
            {"crew.py": "def make():\n    import runner as r\n    return r.Crew(tasks=[r.Task(name='a', run=print)])"},
        ],
    )
    def test_one_that_makes_a_crew_in_some_other_way_is_called(self, make, files):
        parts = "from runner import Crew, Task\ndef build():\n    return Crew(tasks=[Task(name='a', run=print)])"
        module = load_crew(make("one", {**files, "parts.py": parts}))
        name, crew = find_crew(module, "make", adapters.is_crew)
        assert (name, type(crew)) == ("make", Crew)

    def test_one_of_a_package_that_uses_a_framework_is_called(self, make, monkeypatch):
        package = type(sys)("our_crews")
        exec("import pydantic_ai as ai\ndef build():\n    return ai.Agent('test')", vars(package))
        monkeypatch.setitem(sys.modules, "our_crews", package)
        module = load_crew(make("one", {"crew.py": "from our_crews import build\ndef make():\n    return build()"}))
        assert find_crew(module, "make", adapters.is_crew)[0] == "make"

    def test_what_returns_no_crew_is_a_function_though_it_had_to_be_called(self, make):
        code = "def make():\n    import parts\n    return parts.times('ab', 2)"
        module = load_crew(make("one", {"crew.py": code, **self.PARTS}))
        assert find_crew(module, "make", adapters.is_crew) == ("make()", Program("make"))
