"""What a person may type for a crew, and what is made of it."""

from pathlib import Path

import pytest

from runner.bundles.target import Target, parse_target
from runner.core.errors import BadCrew


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path.resolve() / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def test_a_file_brings_its_folder(here):
    write(here, "crew.py")
    expected = Target(file=here / "crew.py", attr=None, root=here, module="crew", include=here)
    assert parse_target("crew.py") == expected
    assert parse_target(str(here / "crew.py")) == expected
    assert parse_target("./crew.py") == expected


def test_an_object_in_a_file(here):
    write(here, "crew.py", "odd:name/crew.py")
    assert parse_target("crew.py:my_crew").attr == "my_crew"
    assert parse_target("crew.py:Team.crew").attr == "Team.crew"
    assert parse_target("odd:name/crew.py").attr is None
    assert parse_target("odd:name/crew.py:crew").attr == "crew"


def test_a_file_in_a_package_brings_the_top_most_package(here):
    write(here, "src/team/__init__.py", "src/team/deep/__init__.py", "src/team/deep/crew.py")
    target = parse_target("src/team/deep/crew.py")
    assert target.module == "team.deep.crew"
    assert target.root == here / "src"
    assert target.include == here / "src/team"
    init = parse_target("src/team/__init__.py")
    assert (init.module, init.include) == ("team", here / "src/team")


def test_a_folder_whose_name_no_import_can_say_is_not_a_package(here):
    write(here, "my-team/__init__.py", "my-team/crew.py")
    assert parse_target("my-team/crew.py").include == here / "my-team"
    assert parse_target("my-team/crew.py").module == "crew"


def test_a_folder_with_a_crew_file_stands_for_it(here):
    write(here, "team/crew.py")
    assert parse_target("team").file == here / "team/crew.py"
    assert parse_target("team/:crew").attr == "crew"


def test_a_link_counts_where_it_leads(here):
    write(here, "real/crew.py", "real/tools.py")
    (here / "crew.py").symlink_to("real/crew.py")
    assert parse_target("crew.py").include == here / "real"


def test_a_module_here(here):
    write(here, "crew.py", "team/__init__.py", "team/main.py", "plain/sub/main.py")
    assert parse_target("crew").file == here / "crew.py"
    target = parse_target("team.main:crew")
    assert target == Target(here / "team/main.py", "crew", here, "team.main", here / "team")
    assert parse_target("team").module == "team"
    # a dotted name says where the root is, even if folders have no __init__.py
    target = parse_target("plain.sub.main:crew")
    assert (target.root, target.module, target.include) == (here, "plain.sub.main", here / "plain")


def test_a_module_on_the_path_is_found_without_importing_it(here, tmp_path, monkeypatch):
    write(tmp_path, "lib/far_team/__init__.py", "lib/far_team/main.py")
    (tmp_path / "lib/far_team/__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    target = parse_target("far_team.main:crew")
    assert target.file == tmp_path.resolve() / "lib/far_team/main.py"
    assert target.include == tmp_path.resolve() / "lib/far_team"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing.py", "no such file: nothing.py"),
        ("no/such/crew.py:crew", "no such file: no/such/crew.py"),
        ("nothing", "nothing: no such file, and no module of that name in "),
        ("no.such:crew", "no.such: no such file, and no module of that name in "),
        ("team.nothing", "team.nothing: no such file, and no module of that name in "),
        ("crew.yaml", "crew.yaml: a flow that is written as YAML does not run"),
        ("crew.txt", "crew.txt is not a Python file"),
        ("data", "data is a directory; it has no Python file"),
        ("scripts", "scripts is a directory; name the crew file in it: scripts/main.py"),
        (".", ". is a directory; name the crew file in it: teams/crew.py"),
        ("v1.2.py", "v1.2.py: Python cannot import a file with a dot in its name"),
        ("crew.yaml:", "expected a name after the colon"),
        ("main.py:my crew", "expected a name after the colon"),
        ("", "no crew file given"),
        (":crew", "no crew file given"),
        ("x" * 5000 + ".py", "no such file"),
        ("a\0b.py", "no such file"),
    ],
)
def test_what_cannot_be_read_says_so_in_one_line(here, text, says):
    write(
        here,
        "crew.yaml",
        "crew.txt",
        "data/x.csv",
        "scripts/main.py",
        "teams/crew.py",
        "v1.2.py",
        "main.py",
        "team/__init__.py",
    )
    with pytest.raises(BadCrew) as caught:
        parse_target(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


CREW = "from crewai import Crew\ncrew = Crew(agents=[], tasks=[])\n"
AGENTS = "from crewai import Agent\n"
KICKS = "crew.kickoff()\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"trip_agents.py": AGENTS, "trip_tasks.py": "", "main.py": CREW + KICKS}, "main.py"),
        (
            {"trip_agents.py": AGENTS, "trip_crew.py": CREW, "main.py": "from trip_crew import crew\n" + KICKS},
            "main.py",
        ),
        ({"trip_agents.py": AGENTS, "trip.py": CREW}, "trip.py"),
        ({"trip.py": CREW + KICKS, "parts.py": CREW, "main.py": "import flask\n"}, "trip.py"),
        (
            {"a.py": CREW, "b.py": CREW, "c.py": AGENTS},
            "trip is a directory; name the crew file in it: trip/a.py, trip/b.py",
        ),
        ({"a.py": "", "b.py": AGENTS}, "trip is a directory; name the crew file in it: trip/a.py, trip/b.py"),
    ],
)
def test_a_folder_stands_for_the_file_that_can_be_run(here, files, found):
    write(here, *(f"trip/{name}" for name in files))
    for name, text in files.items():
        (here / "trip" / name).write_text(text)
    try:
        said = parse_target("trip").file.name
    except BadCrew as error:
        said = str(error)
    assert said == found
