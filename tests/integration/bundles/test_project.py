"""Where the crew of a project lies, and what its ``.env`` says."""

from pathlib import Path

import pytest

from runner.bundles import bundle, dotenv, loader
from runner.bundles.project import environment_file
from runner.bundles.target import parse_target
from runner.client.submission import prepare
from runner.core.errors import BadCrew


def _write(root: Path, *files: str, kind: str = "crew", more: str = "") -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "pyproject.toml").write_text(f'[project]\nname = "my-team"\n[tool.crewai]\ntype = "{kind}"\n{more}')
    return root


@pytest.mark.parametrize("named", ["", "src/my_team/crew.py"])
def test_a_crew_of_a_project_goes_with_all_of_the_project(tmp_path: Path, named: str) -> None:
    files = ("src/my_team/__init__.py", "src/my_team/crew.py", "src/my_team/config/agents.yaml", "knowledge/a.txt")
    root = _write(tmp_path, *files)
    found = parse_target(str(root / named))
    assert (found.module, found.root, found.include) == ("my_team.crew", root, root)
    assert bundle.pack(found).files == len(files) + 1


def test_packages_of_a_project_are_imported_from_its_src(tmp_path: Path) -> None:
    root = _write(tmp_path, "src/my_team/__init__.py", "src/my_team/tools/one.py")
    (root / "src/my_team/tools/one.py").write_text("NAME = 'one'\n")
    (root / "src/my_team/crew.py").write_text("from my_team.tools.one import NAME\nfrom .tools import one\n")
    assert loader.load_target(parse_target(str(root))).NAME == "one"


def test_a_crew_in_another_repository_is_by_itself(tmp_path: Path) -> None:
    # A folder of examples in this very repository: a package here has a crew.py, too.
    for name in ("pyproject.toml", "lib/__init__.py", "lib/crew.py", "examples/news/crew.py", "examples/news/tools.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[project]\nname = 'lib'\n" if name.endswith("toml") else "")
    target = parse_target(str(tmp_path / "examples/news/crew.py"))
    assert (target.root, target.module) == (tmp_path / "examples/news", "crew")
    target = parse_target(str(tmp_path / "lib/crew.py"))
    assert (target.root, target.module, target.include) == (tmp_path, "lib.crew", tmp_path / "lib")


@pytest.mark.parametrize(
    ("kind", "more", "files", "said"),
    [
        ("crew", "", [], "the crew of the project my-team is looked for in src/my_team/crew.py: no such file in "),
        ("flow", "", [], "the flow of the project my-team is looked for in src/my_team/main.py: no such file in "),
        ("crew", "", ["src/a/crew.py", "src/b/crew.py"], "may be in src/a/crew.py, src/b/crew.py: name the file"),
        ("flow", 'definition = "src/x/flow.yaml"', [], "a flow that is written as YAML does not run on the fleet"),
        ("crew", 'definition = "team.jsonc"', ["team.jsonc"], "a crew in JSON is named crew.jsonc or"),
    ],
)
def test_a_project_without_its_crew_is_refused(
    tmp_path: Path, kind: str, more: str, files: list[str], said: str
) -> None:
    root = _write(tmp_path, "src/x.py", *files, kind=kind, more=more)
    with pytest.raises(BadCrew) as refused:
        parse_target(str(root))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "more", "files", "file"),
    [
        ("flow", "", ["src/my_team/main.py", "src/my_team/crews/x/x.py"], "src/my_team/main.py"),
        ("crew", "", ["src/other/crew.py", "src/other/main.py"], "src/other/crew.py"),
        ("crew", 'definition = "crew.jsonc"', ["crew.jsonc", "agents/a.jsonc"], "crew.jsonc"),
    ],
)
def test_the_file_of_a_project(tmp_path: Path, kind: str, more: str, files: list[str], file: str) -> None:
    assert parse_target(str(_write(tmp_path, *files, kind=kind, more=more))).file == tmp_path / file


def test_a_folder_with_agents_and_tasks_stands_for_its_main(tmp_path: Path) -> None:
    for name in ("main.py", "agents.py", "tasks.py"):
        (tmp_path / name).write_text("")
    assert parse_target(str(tmp_path)).module == "main"


def test_a_file_that_is_read_finds_what_is_in_its_project(tmp_path: Path) -> None:
    root = _write(tmp_path, "src/my_team/__init__.py", "knowledge/a.txt")
    before = Path.cwd()
    code = "import pathlib\nfrom runner import Crew, Task\npathlib.Path('knowledge/a.txt').read_text()\n"
    for file in (f"{root}/src/my_team/crew.py", f"{root}/plain.py"):
        Path(file).write_text(code + "crew = Crew(tasks=[Task(run=str)])\n")
        assert prepare(file).plan.total == 1
    assert Path.cwd() == before


def test_what_a_project_says_of_its_environment(tmp_path: Path) -> None:
    root = _write(tmp_path, "src/my_team/crew.py")
    (root / ".env").write_text(
        "# keys\nOPENAI_API_KEY=sk-1 # mine\nexport MODEL='a b'\nEMPTY=\nLINES=\"a\\nb\"\nSET=other\nRUNNER_QUEUE=x\n"
    )
    assert environment_file(root / "src/my_team/crew.py") == root / ".env"
    environment = {"SET": "before"}
    assert dotenv.take(root / ".env", environment) == ["OPENAI_API_KEY", "MODEL", "EMPTY", "LINES"]
    assert environment == {
        "SET": "before", "OPENAI_API_KEY": "sk-1", "MODEL": "a b", "EMPTY": "", "LINES": "a\nb"
    }  # fmt: skip


FLOW = "from runner.flows import Flow, start\nclass Scores(Flow):\n    @start()\n    def a(self): ...\n"
LIBRARY = "[project]\nname = 'scores'\n"


@pytest.mark.parametrize("more", ["[project.scripts]\nkickoff = 'scores.main:kickoff'\n", ""])
def test_a_project_without_a_word_of_crewai_is_found_by_what_it_kicks_off(tmp_path: Path, more: str) -> None:
    _write(tmp_path, "src/scores/__init__.py", "src/other/__init__.py")
    (tmp_path / "pyproject.toml").write_text(LIBRARY + more)
    (tmp_path / "src/scores/main.py").write_text(FLOW)
    (tmp_path / "src/other/main.py").write_text("print('not this')\n")
    found = parse_target(str(tmp_path))
    assert (found.module, found.include) == ("scores.main", tmp_path)
    assert prepare(str(tmp_path)).attr == "Scores"


def test_a_script_in_src_finds_what_is_beside_it(tmp_path: Path) -> None:
    _write(tmp_path, "src/pkg/crew.py", "src/pkg/helping/words.py")
    (tmp_path / "src/pkg/helping/words.py").write_text("WORD = 'owls'\n")
    (tmp_path / "src/pkg/json.py").write_text("raise AssertionError('the standard library comes first')\n")
    (tmp_path / "src/pkg/crew.py").write_text(
        "import json\nfrom helping.words import WORD\nfrom runner import Crew, Task\n"
        "crew = Crew(name=WORD, tasks=[Task(run=str)])\n"
    )
    (tmp_path / "src/pkg/main.py").write_text("from crew import crew\n")
    assert prepare(str(tmp_path / "src/pkg/main.py")).plan.crew == "owls"


@pytest.mark.parametrize(
    ("crew", "file"),
    [
        ("def build_crew(topic):\n    return Crew()\n", "main.py"),
        ("def build_crew(topic='owls'):\n    return Crew()\n", "crew.py"),
        ("crew = build()\n", "crew.py"),
        ("class Team: ...\n", "crew.py"),
        ("from team import crew\n", "crew.py"),
        ("def broken(:\n", "crew.py"),
    ],
)
def test_a_crew_file_without_a_crew_at_hand_yields_to_the_main_that_kicks_it_off(
    tmp_path: Path, crew: str, file: str
) -> None:
    (tmp_path / "crew.py").write_text(f"from crewai import Crew\nMODEL = 'x'\n{crew}")
    (tmp_path / "main.py").write_text(
        "from crewai import Crew\nfrom crew import build_crew\nbuild_crew('x').kickoff()\n"
    )
    assert parse_target(str(tmp_path)).file.name == file
