"""A model that is asked by gRPC, as a program: its requests tell what it is to do, and it notes each in a file.

`python rpc_server.py FILE` prints its port. It is a process of its own, as all that uses gRPC in these tests is: its
threads do not outlive a fork of the process that runs the tests.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

PIECES = 3


class Model(grpc.GenericRpcHandler):
    """Answers with what it was asked: as it is, or a few times."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._came = Counter[bytes]()

    def service(self, details: Any) -> Any:
        if details.method.endswith(("Stream", "Chunk", "StreamGenerateContent")):
            return grpc.unary_stream_rpc_method_handler(self.stream)
        return grpc.unary_unary_rpc_method_handler(self.whole)

    def whole(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._begin(request, context)
        return b"" if b"nothing" in request else request

    def stream(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._begin(request, context)
        for number in range(PIECES):
            if number == PIECES - 1:
                self._midway(request, context)
            yield b"\x08%c" % number + request  # a field, before those that it has

    def _begin(self, request: bytes, context: grpc.ServicerContext) -> None:
        with self._log.open("ab") as log:
            log.write(request[:100].replace(b"\n", b" ") + b"\n")
        self._came[request] += 1
        if b"invalid" in request:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such thing")
        if b"busy" in request or (b"once" in request and self._came[request] % 2):
            context.set_trailing_metadata((("retry-after", "1"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        if b"lost" in request:
            os._exit(1)
        if b"slow" in request:
            _until_left(context)
        if b"waits" in request:
            _until_there(self._log.with_suffix(".go"))

    def _midway(self, request: bytes, context: grpc.ServicerContext) -> None:
        if b"breaks" in request:
            context.set_trailing_metadata((("retry-after", "1"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        if b"stops" in request:
            os._exit(1)
        if b"stalls" in request:
            _until_left(context)


def _until_left(context: grpc.ServicerContext) -> None:
    """Return when nobody waits for the answer."""
    left = threading.Event()
    if context.add_callback(left.set):
        left.wait(60)


def _until_there(file: Path) -> None:
    """Return when whoever asks has made this file."""
    ends = time.monotonic() + 60
    while not file.exists() and time.monotonic() < ends:
        time.sleep(0.01)


def main() -> None:
    size = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(16), options=size)
    server.add_generic_rpc_handlers((Model(Path(sys.argv[1])),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()  # until whoever began it ends
    os._exit(0)


if __name__ == "__main__":
    main()
