"""The files of an embedded server, and whether their places are safe to use."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from runner.core import settings
from runner.core.errors import StoreUnreachable

_ELSEWHERE = "set RUNNER_STATE_DIR to a folder of your own, or use --redis-url or RUNNER_REDIS_URL"

#: sun_path holds 107 bytes on Linux and 103 on macOS.
_LONGEST_SOCKET_PATH = 100


def default_state_dir() -> Path:
    """Return RUNNER_STATE_DIR, else crew-runner in the user's folder for state."""
    try:
        return settings.state_dir()
    except RuntimeError as exc:
        raise StoreUnreachable(f"this user has no home folder: {_ELSEWHERE}") from exc


@dataclass(frozen=True)
class StateDir:
    """One state directory: the files in it, and the socket of its server."""

    state: Path
    socket: Path

    @classmethod
    def of(cls, state_dir: Path) -> "StateDir":
        """Name the place, by whatever path it is reached; touches nothing."""
        state = Path(os.path.realpath(state_dir.expanduser()))
        socket = state / "redis.sock"
        # Too long for a socket, or with characters that a URL would have to escape: a short folder instead. In /tmp
        # itself, since TMPDIR and XDG_RUNTIME_DIR may differ between two terminals, which then would not meet.
        if len(os.fsencode(socket)) > _LONGEST_SOCKET_PATH or not re.fullmatch(r"[\w./@+-]+", str(socket), re.ASCII):
            digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
            socket = Path("/tmp", f"crew-runner-{os.getuid()}-{digest}", "redis.sock")
        return cls(state, socket)

    @property
    def url(self) -> str:
        """The server, as redis-py names it."""
        return f"unix://{self.socket}"

    @property
    def broker_url(self) -> str:
        """The server, as kombu names it."""
        return f"redis+socket://{self.socket}"

    def create(self) -> None:
        """Make the state directory, private to this user, and see that it can be used."""
        try:
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.state.stat().st_mode
        except OSError as exc:
            raise self.unusable(exc) from exc
        if mode & stat.S_IWOTH:  # anybody could put a server of theirs there
            raise StoreUnreachable(f"the state directory is writable by everyone: {self.state}: {_ELSEWHERE}")
        if not os.access(self.state, os.R_OK | os.W_OK | os.X_OK):
            raise StoreUnreachable(f"the state directory {self.state} is not writable: {_ELSEWHERE}")

    def create_socket_folder(self) -> None:
        """Make the folder for the socket, if it is not the state directory itself."""
        if self.socket.parent != self.state:
            try:
                self.socket.parent.mkdir(mode=0o700, exist_ok=True)
            except OSError as exc:
                raise self.unusable(exc) from exc

    def trusts_socket_folder(self) -> bool:
        """Whether the socket's folder is there; refuses one that another user could have made."""
        folder = self.socket.parent
        if folder == self.state:
            return folder.is_dir()
        try:
            found = folder.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise StoreUnreachable(f"{folder} is not a folder private to this user: remove it, or {_ELSEWHERE}")
        return True

    def unusable(self, exc: OSError) -> StoreUnreachable:
        """Say that the operating system refuses the place."""
        return StoreUnreachable(f"cannot use the state directory {self.state} ({exc.strerror or exc}): {_ELSEWHERE}")
