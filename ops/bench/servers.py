"""The Redis that everything is measured on: the embedded binary on a socket of its own, append-only file on."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from waiting import until

from runner.client.embedded import find_binary

SETTINGS = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxclients", "5000")


@dataclass
class Server:
    """A running server."""

    folder: Path
    pid: int = 0

    @property
    def socket(self) -> str:
        return str(self.folder / "s.sock")

    @property
    def url(self) -> str:
        """The runner's store: database 0."""
        return f"unix://{self.socket}"

    @property
    def peer_url(self) -> str:
        """The peer's broker: the same server, database 1."""
        return f"redis+socket://{self.socket}?virtual_host=1"

    def client(self, db: int = 0) -> Redis:
        return Redis(unix_socket_path=self.socket, db=db, decode_responses=True, encoding_errors="surrogateescape")


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """A server for as long as the context lasts; ``arguments`` are more of its own."""
    server = Server(Path(tempfile.mkdtemp(prefix="bench-")))
    process = subprocess.Popen(
        [
            find_binary(), "--port", "0", "--unixsocket", server.socket, "--dir", server.folder,
            "--logfile", server.folder / "log", *SETTINGS, *arguments,
        ]
    )  # fmt: skip
    try:
        server.pid = process.pid
        until(lambda: _answers(server), "the server answers")
        yield server
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(server.folder, ignore_errors=True)


def _answers(server: Server) -> bool:
    with contextlib.suppress(Exception), server.client() as client:
        return bool(client.ping())
    return False
