"""Settings of the environment that are wrong: `runner doctor` names each, and commands one that is misspelt."""

import re

import pytest

from runner.core.settings import INTERNAL, KNOWN, from_outside, misspelt

GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""
ANY_TEXT = {
    *("RUNNER_CACHE_DIR", "RUNNER_STATE_DIR", "RUNNER_SHARED_DIR", "RUNNER_PRELOAD", "RUNNER_OFFLINE_MODEL"),
    "RUNNER_REDIS_SERVER",  # of the embedded server, which is not asked here
}
OF_GITHUB_ACTIONS = {
    *("RUNNER_ARCH", "RUNNER_DEBUG", "RUNNER_ENVIRONMENT", "RUNNER_NAME", "RUNNER_OS", "RUNNER_TEMP"),
    *("RUNNER_TOOL_CACHE", "RUNNER_TRACKING_ID", "RUNNER_USER", "RUNNER_WORKSPACE"),
}


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in ANY_TEXT])
def test_doctor_names_a_setting_that_is_wrong(name, cli):
    said = cli("doctor", **{name: "no such value"})
    assert said.code == (4 if name == "RUNNER_BROKER_URL" else 2), said
    assert re.search(r"^!!  .*no(%20| )such|^!!  .*" + name, said.out, re.MULTILINE), said.out
    assert said.err == ""
    assert "Redis: " in said.out  # and goes on


def test_doctor_names_the_settings_that_are_set(cli, server):
    assert "ok  settings: RUNNER_REDIS_URL, RUNNER_CACHE_DIR, RUNNER_LEASE, RUNNER_STATE_DIR\n" in cli(
        "doctor", RUNNER_LEASE="2"
    ).out.replace("\r", "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RUNNER_REDIS_ULR", "RUNNER_REDIS_URL"),
        ("RUNNER_BUNDLE_KEYS", "RUNNER_BUNDLE_KEY"),
        ("RUNNER_MODEL_ENDPOINT", "RUNNER_MODEL_ENDPOINTS"),
    ],
)
def test_a_misspelt_setting_is_named(name, meant, cli, write_crew):
    line = f"{name} is not a setting: did you mean {meant}?"
    said = cli("doctor", **{name: "x"})
    assert f"!!  settings: {line}\n" in said.out
    assert said.code == 1
    assert f"warning: {line}\n" in cli("submit", write_crew(GOOD), "--detach", **{name: "x"}).err


def test_variables_of_github_actions_are_none_of_ours(monkeypatch):
    for name in OF_GITHUB_ACTIONS:
        monkeypatch.setenv(name, "github-hosted")
    assert misspelt() == []
    assert not INTERNAL & from_outside().keys()
