"""Settings from the environment: defaults, bounds, and what is said of a value that is not taken."""

import os
import sys
from pathlib import Path

import pytest

from runner.core import settings
from runner.core.errors import UsageError
from runner.core.settings import WorkerSettings, queue_name


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEASE", "DRAIN_TIMEOUT", "MAX_ATTEMPTS", "RESEND_AFTER", "WAIT_REPLICAS", "WAIT_TIMEOUT", "STALL",
                 "QUEUE", "LABELS", "CACHE_DIR",
                 "BUNDLE_LIMIT", "CACHE_LIMIT", "DEMO_DELAY", "OFFLINE_MODEL"):  # fmt: skip
        monkeypatch.delenv(f"RUNNER_{name}", raising=False)


def test_without_any_the_defaults_count() -> None:
    found = WorkerSettings()
    assert (found.lease, found.drain_timeout, found.max_attempts, found.stall) == (5.0, 10.0, 5, 15.0)
    assert (found.lease_ms, found.beat) == (5000, 1.0)


def test_they_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_LEASE", "2.5")
    monkeypatch.setenv("RUNNER_MAX_ATTEMPTS", "3")
    monkeypatch.setenv("RUNNER_STALL", "  ")  # as an empty line of an .env file leaves it
    found = WorkerSettings()
    assert (found.lease_ms, found.max_attempts, found.stall) == (2500, 3, 15.0)
    assert found.beat == 0.5, "five in a lease"


def test_a_commit_waits_for_replicas_no_longer_than_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_WAIT_TIMEOUT", "60")
    assert WorkerSettings().wait_timeout == 5.0


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("RUNNER_LEASE", "five", r"RUNNER_LEASE must be a number, got 'five'"),
        ("RUNNER_MODEL_ENDPOINTS", "api.example.com", r"RUNNER_MODEL_ENDPOINTS must be .*, got 'api.example.com'"),
        ("RUNNER_MODEL_ENDPOINTS", "a.com/x,b.com/y?key=1", r".*, got 'b.com/y\?key=1'"),
        ("RUNNER_IDEMPOTENT_ENDPOINTS", "a.com", r"RUNNER_IDEMPOTENT_ENDPOINTS must be .*, got 'a.com'"),
        ("RUNNER_LEASE", "nan", r"RUNNER_LEASE must be a number, got 'nan'"),
        ("RUNNER_DRAIN_TIMEOUT", "inf", r"RUNNER_DRAIN_TIMEOUT must be a number, got 'inf'"),
        ("RUNNER_LEASE", "0.1", r"RUNNER_LEASE must be at least 0\.3, got 0\.1"),
        ("RUNNER_WAIT_REPLICAS", "-1", r"RUNNER_WAIT_REPLICAS must be at least 0, got -1"),
        ("RUNNER_MAX_ATTEMPTS", "3e6", r"RUNNER_MAX_ATTEMPTS must be at most 1e\+06, got 3e\+06"),
        ("RUNNER_STALL", "1e10", r"RUNNER_STALL must be at most 3\.1536e\+09, got 1e\+10"),
    ],
)
def test_a_value_that_is_not_taken_is_named(name: str, given: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, given)
    with pytest.raises(UsageError, match=f"^{says}$"):
        WorkerSettings()


def test_the_queue_is_the_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.default_queue() == "runner"
    monkeypatch.setenv("RUNNER_QUEUE", "large machines")
    with pytest.raises(UsageError, match=r"^'large machines' is not a queue name: it contains blanks$"):
        settings.default_queue()
    monkeypatch.setenv("RUNNER_QUEUE", "large-machines")
    assert settings.default_queue() == settings.default_queue(embedded=True) == "large-machines"


def test_the_queue_of_the_embedded_server_is_that_of_the_python_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    here = settings.default_queue(embedded=True)
    assert here.startswith("runner-")
    assert here == settings.embedded_queue.__wrapped__()
    monkeypatch.setattr(sys, "prefix", "/another/project/.venv")
    assert settings.embedded_queue.__wrapped__() not in (here, "runner")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("runner:jobs", "the prefix runner: is reserved; choose another name"),
        ("a\nb", "has control characters: leave them out"),
        ("q" * 201, "has 201 bytes: at most 200 are allowed"),
        ("é" * 101, "has 202 bytes: at most 200 are allowed"),
        ("a\ud800", "contains half of a surrogate pair, which is not valid UTF-8"),
    ],
)
def test_a_name_that_is_no_queues(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        queue_name(name)


def test_labels_are_given_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.worker_labels() == ()
    monkeypatch.setenv("RUNNER_LABELS", " zone=a,gpu,, gpu ")
    assert settings.worker_labels() == ("gpu", "zone=a")
    monkeypatch.setenv("RUNNER_LABELS", "gpu,two words")
    with pytest.raises(UsageError, match=r"^'two words' is not a label: "):
        settings.worker_labels()


def test_bundles_are_unpacked_in_the_users_cache_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert settings.cache_dir() == Path("/home/me/.cache/crew-runner")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert settings.cache_dir() == Path("/caches/crew-runner")
    monkeypatch.setenv("RUNNER_CACHE_DIR", "/fast/disk")
    assert settings.cache_dir() == Path("/fast/disk")


def test_limits_are_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.bundle_limit(), settings.cache_limit()) == (32 * 2**20, 4 * 2**30)
    monkeypatch.setenv("RUNNER_BUNDLE_LIMIT", "1000.9")
    assert settings.bundle_limit() == 1000
    monkeypatch.setenv("RUNNER_CACHE_LIMIT", "-1")
    with pytest.raises(UsageError, match=r"^RUNNER_CACHE_LIMIT must be at least 0, got -1$"):
        settings.cache_limit()


def test_the_demo_and_the_offline_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.demo_delay(), settings.offline_model()) == (0.3, None)
    monkeypatch.setenv("RUNNER_DEMO_DELAY", "0")
    monkeypatch.setenv("RUNNER_OFFLINE_MODEL", "/weights")
    assert (settings.demo_delay(), settings.offline_model()) == (0.0, Path("/weights"))


def test_where_data_is_kept_that_outlives_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path / "mine"))
    assert settings.state_dir() == tmp_path / "mine"
    monkeypatch.delenv("RUNNER_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert settings.state_dir() == tmp_path / "crew-runner"
    monkeypatch.setenv("XDG_STATE_HOME", "not absolute")
    assert settings.state_dir() == Path.home() / ".local/state/crew-runner"


def test_a_setting_with_a_few_values_has_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNER_ENVIRONMENTS", raising=False)
    assert settings.builds_environments()
    monkeypatch.setenv("RUNNER_ENVIRONMENTS", " OFF ")
    assert not settings.builds_environments()
    monkeypatch.setenv("RUNNER_ENVIRONMENTS", "maybe")
    with pytest.raises(UsageError, match="RUNNER_ENVIRONMENTS must be on or off, got 'maybe'"):
        settings.builds_environments()


def test_a_variable_that_is_nearly_a_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RUNNER_")]:
        monkeypatch.delenv(name)
    assert settings.misspelt() == []
    monkeypatch.setenv("RUNNER_LEASES", "5")
    monkeypatch.setenv("RUNNER_OS", "Linux")
    assert settings.misspelt() == ["RUNNER_LEASES is not a setting: did you mean RUNNER_LEASE?"]


def test_what_is_withheld_is_still_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.WITHHELD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "withheld", {})
    monkeypatch.setenv("RUNNER_BUNDLE_KEY", "key")
    settings.withhold()
    assert "RUNNER_BUNDLE_KEY" not in os.environ
    assert settings.setting("RUNNER_BUNDLE_KEY") == "key"
