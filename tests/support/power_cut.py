"""A server that loses what it acknowledged last, as where its machine loses power."""

import shutil
from pathlib import Path

from redis import Redis

from runner.testing import RedisServer, eventually


class PowerCut:
    """Of one server. ``server`` is started by whoever made it."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self._on_disk, self._kept = server.folder / "appendonlydir", Path(f"{server.folder}-kept")

    def remember(self) -> None:
        """What it has acknowledged by now is on disk, and all that is when the power goes.

        Where its disk is busy it has what it writes in a buffer, for up to two seconds.
        """
        with Redis.from_url(self.server.url) as client:
            eventually(lambda: client.info("persistence")["aof_buffer_length"] == 0, why="it has written all")
            shutil.copytree(self._on_disk, self._kept)

    def go_back(self) -> None:
        """The power goes, and is back."""
        self.server.kill()
        shutil.rmtree(self._on_disk)
        shutil.move(self._kept, self._on_disk)
        self.server.start()
