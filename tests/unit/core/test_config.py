"""`CheckpointConfig`: what it takes, and what it makes of what was left out."""

import json

import pytest
from pydantic import ValidationError

from runner import Agent, CheckpointConfig, Crew, RuntimeState, Task
from runner.core.errors import BadCheckpoint
from runner.providers import CheckpointNotFound, JsonProvider, RedisProvider, SqliteProvider


@pytest.mark.parametrize(
    ("location", "provider"),
    [
        ("./.checkpoints", JsonProvider),
        ("runs", JsonProvider),
        ("runs.db", SqliteProvider),
        ("runs.sqlite", SqliteProvider),
        ("redis://localhost:6379/0?prefix=runs", RedisProvider),
    ],
)
def test_the_provider_is_the_one_for_the_location(tmp_path, monkeypatch, location, provider):
    monkeypatch.chdir(tmp_path)
    assert type(CheckpointConfig(location=location).provider) is provider


def test_a_provider_that_is_given_stays(tmp_path):
    config = CheckpointConfig(location=str(tmp_path / "runs.db"), provider=JsonProvider())
    assert type(config.provider) is JsonProvider
    assert config.location.endswith("runs.db")


def test_a_database_without_a_suffix_gets_one():
    assert CheckpointConfig(location="runs", provider=SqliteProvider()).location == "runs.db"


def test_a_location_with_a_database_is_written_to(tmp_path):
    config = CheckpointConfig(location=str(tmp_path / "runs.db"))
    Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=config).kickoff()
    [kept] = SqliteProvider().checkpoints(config.location)
    assert kept.complete


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("on_events", ["task_complete"], "did you mean 'task_completed'"),
        ("on_events", ["qqq"], 'such as "task_completed"'),
        ("max_checkpoints", 0, "max_checkpoints must be at least 1, got 0"),
        ("max_checkpoints", True, "max_checkpoints is how many to keep, not True: None keeps all"),
        ("on_events", [], "on_events is empty: name events, or pass checkpoint=False"),
        ("restore_from", "", "restore_from is empty: name a checkpoint"),
        ("locaton", "x", "Extra inputs are not permitted"),
    ],
)
def test_what_it_refuses(field, value, says):
    with pytest.raises(ValidationError, match=says):
        CheckpointConfig(**{field: value})


def test_a_location_may_be_a_path(tmp_path):
    config = CheckpointConfig(location=tmp_path / "c.db")
    assert (config.location, config.provider) == (str(tmp_path / "c.db"), SqliteProvider())


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path, caplog):
    file = tmp_path / "c.db"
    file.write_bytes(b"no database, but long enough to be one" * 50)
    says = f"{file} is not an SQLite database: name another file"
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=CheckpointConfig(location=file))
    for restore in (file, f"{file}#20200101T000000_0a1b2c3d"):
        with pytest.raises(BadCheckpoint, match=says):
            crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=restore))
    assert crew.kickoff().raw == "A"
    assert says in caplog.text
    with pytest.raises(BadCheckpoint, match=says):
        SqliteProvider().prune(str(file), 1)


def test_only_a_setting_is_one():
    with pytest.raises(ValidationError, match=r"not 'yes': CheckpointConfig\(location='yes'\) writes there"):
        Crew(tasks=[], checkpoint="yes")
    with pytest.raises(ValidationError, match="takes True, False, None or a CheckpointConfig, not 1"):
        Agent(role="r", checkpoint=1)
    assert Crew(tasks=[], checkpoint=True).checkpoint is True


@pytest.mark.parametrize("restore", [Crew.from_checkpoint, Crew.fork, Crew(tasks=[]).kickoff])
def test_only_a_config_names_what_to_go_on_from(restore):
    with pytest.raises(TypeError, match=r"takes a CheckpointConfig, as in CheckpointConfig\(restore_from='./here'\)"):
        restore("./here") if restore.__name__ != "kickoff" else restore(from_checkpoint="./here")


@pytest.mark.parametrize("missing", ["nowhere", "nowhere.db", "nowhere/main/20200101T000000_0a1b2c3d_p-none.json"])
def test_what_is_not_there_is_said_in_the_readers_words(tmp_path, missing):
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "A")])
    with pytest.raises(CheckpointNotFound, match=f"Checkpoint not found: {tmp_path / missing}"):
        crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=tmp_path / missing))


def test_a_place_of_other_files_is_refused_before_the_disk_is_walked(tmp_path):
    for i in range(300):
        folder = tmp_path / f"{i}"
        folder.mkdir()
        (folder / "package.json").write_text("{}")
    with pytest.raises(
        BadCheckpoint, match=f"{tmp_path} is not a checkpoint location: more than 100 folders in it hold"
    ):
        Crew.from_checkpoint(CheckpointConfig(restore_from=tmp_path))


def test_what_lies_beside_checkpoints_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=CheckpointConfig(location=".")).kickoff()
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "main" / "notes.json").write_text("{}")
    assert len(JsonProvider().checkpoints(".")) == 1


def test_a_file_that_was_copied_elsewhere_is_gone_on_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=True)
    crew.kickoff()
    [kept] = JsonProvider().checkpoints(".checkpoints")
    (tmp_path / "copy.json").write_bytes((tmp_path / kept.location).read_bytes())
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from="copy.json"))
    assert restored.checkpoint.location == "./.checkpoints"
    assert restored.kickoff().raw == "A"


@pytest.mark.parametrize(
    ("version", "says"),
    [("1.15.30", "only CrewAI resumes from its own"), ("1.2.0", "install a newer crew-runner")],
)
def test_a_newer_version_is_refused_and_crewais_is_told_apart(version, says):
    with pytest.raises(BadCheckpoint, match=rf"version {version}, which is newer than .*: {says}"):
        RuntimeState.model_validate_json(json.dumps({"crewai_version": version, "entities": []}))


def test_a_branch_that_leads_elsewhere_is_refused_before_anything_runs():
    state = RuntimeState(root=[])
    with pytest.raises(ValueError, match="escapes checkpoint directory"):
        state.fork("../../etc")
    assert state.branch == "main"


@pytest.mark.parametrize("name", ["x" * 300, 5, "two\nlines", ""])
def test_what_names_no_branch_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="Not a branch name"):
        JsonProvider().checkpoint("{}", str(tmp_path), branch=name)


def test_a_fork_has_a_branch_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Crew(tasks=[Task(name="a", run=lambda ctx: "A")], checkpoint=True).kickoff()
    with pytest.raises(ValueError, match="a fork needs a branch name other than 'main'"):
        Crew.fork(CheckpointConfig(restore_from=".checkpoints"), branch="main")


def test_a_stored_branch_that_leads_elsewhere_is_no_checkpoint():
    with pytest.raises(BadCheckpoint, match="escapes checkpoint directory"):
        RuntimeState.model_validate_json(json.dumps({"branch": "../../evil", "entities": []}))


@pytest.mark.parametrize("setting", ["here", 5])
def test_a_setting_that_is_assigned_is_checked_too(setting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "A")])
    crew.checkpoint = setting
    with pytest.raises(ValueError, match="takes True, False, None or a CheckpointConfig"):
        crew.kickoff()
    assert not list(tmp_path.iterdir())
