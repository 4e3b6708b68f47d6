"""The store is away as a call is about to leave: its body does not before its note, and its service may not wait."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from .clients import CLIENTS, Given

REFUSAL = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Impatient:
    """A service that waits no longer for a request: it says so, and closes the connection."""

    def __init__(self) -> None:
        self.gave_up = threading.Event()
        self.came_before = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1/chat/completions"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    connection.settimeout(0.2)
                    with contextlib.suppress(TimeoutError):
                        self.came_before += connection.recv(65536)
                    connection.sendall(REFUSAL)
                    connection.shutdown(socket.SHUT_WR)
                    self.gave_up.set()
                    connection.settimeout(5)
                    while connection.recv(65536):
                        pass

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def service() -> Iterator[Impatient]:
    with contextlib.closing(Impatient()) as one:
        yield one


@pytest.mark.parametrize("client", [name for name in CLIENTS if not name.startswith("botocore")])
def test_one_that_its_service_no_longer_waits_for_is_not_in_doubt(
    client: str, service: Impatient, account: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = account.begin_step

    def begin_late(*args: Any, **about: Any) -> None:
        assert service.gave_up.wait(20)
        begin(*args, **about)

    monkeypatch.setattr(account, "begin_step", begin_late)

    def task() -> Any:
        try:
            return CLIENTS[client](Given(service.url, timeout=5.0))
        except Exception as error:
            return error

    found = attempt(task)
    assert service.came_before.partition(b"\r\n\r\n")[2] == b"", "no body leaves before the note is in the store"
    assert (account.paid.total(), account.in_doubt) == (0, 0), found
