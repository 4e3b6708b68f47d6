"""Where the state lives: long paths, odd paths, and paths that cannot be used."""

import stat
from pathlib import Path

import pytest
import redis
from kombu import Connection

from runner.client.embedded import default_state_dir, join, running
from runner.client.embedded.paths import StateDir
from runner.core.errors import StoreUnreachable


@pytest.mark.parametrize("name", ["long" * 30, "with space, %41 and ü?#"], ids=["long", "odd"])
def test_a_path_unfit_for_a_socket_or_a_url_gets_a_short_private_folder(new_state, name):
    state = new_state(name)
    folder = StateDir.of(state.path).socket.parent
    with join(state.path) as membership:
        assert len(membership.url) < 60
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert running(state.path) == membership.url
        with redis.Redis.from_url(membership.url) as client:
            client.set("kept", "yes")
        with Connection(membership.broker_url) as connection:
            connection.ensure_connection(max_retries=1)
        assert (state.path / "data").is_dir()
    state.wait_gone()
    assert not folder.exists(), "the folder in /tmp goes with the server"
    with join(state.path) as membership, redis.Redis.from_url(membership.url) as client:
        assert client.get("kept") == b"yes"


@pytest.mark.parametrize("trap", ["open to all", "a link"])
def test_a_short_folder_that_others_could_have_made_is_refused(new_state, tmp_path, trap):
    state = new_state("long" * 30)
    folder = StateDir.of(state.path).socket.parent
    if trap == "a link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    try:
        with pytest.raises(StoreUnreachable, match="not a folder private to this user"):
            join(state.path)
        with pytest.raises(StoreUnreachable, match="not a folder private to this user"):
            running(state.path)
    finally:
        folder.unlink() if folder.is_symlink() else folder.rmdir()


def test_one_directory_by_two_names_is_one_server(state, short_tmp):
    with join(state.path) as membership:
        (short_tmp / "other").symlink_to(state.path)
        with join(short_tmp / "other") as again:
            assert again.url == membership.url
        assert len(state.keepers) == 1


def test_a_state_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreUnreachable, match=r"cannot use the state directory .*RUNNER_STATE_DIR.*--redis-url"
    ) as error:
        join(tmp_path / "file" / "state")
    assert "\n" not in str(error.value)


def test_a_state_directory_without_the_right_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # permissions do not bind root
    with pytest.raises(StoreUnreachable, match=r"is not writable: set RUNNER_STATE_DIR"):
        join(tmp_path)


def test_a_state_directory_open_to_everybody_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(StoreUnreachable, match="is writable by everyone"):
        join(tmp_path)


def test_the_default_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_state_dir() == Path("/home/me/.local/state/crew-runner")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert default_state_dir() == Path("/home/me/.local/state/crew-runner")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert default_state_dir() == Path("/xdg/crew-runner")
    monkeypatch.setenv("RUNNER_STATE_DIR", "~/mine")
    assert default_state_dir() == Path("/home/me/mine")


def test_a_user_without_a_home(monkeypatch):
    def no_home():
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(StoreUnreachable, match="no home folder: set RUNNER_STATE_DIR"):
        default_state_dir()
