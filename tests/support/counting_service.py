"""A model that takes its time to answer, and counts what it was asked: what is paid, whatever the ledger says."""

import collections
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "abc"


class CountingService(ThreadingHTTPServer):
    """``asked`` counts the requests by what each says. ``wait`` gives the seconds that the answer takes, by that and
    how many times it was asked.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, wait: Callable[[str, int], float]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.asked = collections.Counter[str]()
        self.lock = threading.Lock()
        self.wait = wait
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    server: CountingService

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = asked["messages"][-1]["content"]
        with self.server.lock:
            self.server.asked[said] += 1
            wait = self.server.wait(said, self.server.asked[said])
        time.sleep(max(0.0, wait))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        about = {"id": "x", "created": 1, "model": "m"}
        if asked.get("stream"):
            for word in ANSWER:
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": "stop" if word == "c" else None}
                part = about | {"object": "chat.completion.chunk", "choices": [choice]}
                self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")
                time.sleep(0.02)
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
            answer = about | {"object": "chat.completion", "choices": [choice]}
            self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def counting_service(wait: Callable[[str, int], float]) -> Iterator[CountingService]:
    """Serve until the end of this context."""
    with CountingService(wait) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


POST = """
    import json, urllib.request

    def post(said):
        data = json.dumps({{"messages": [{{"role": "user", "content": said}}]}}).encode()
        with urllib.request.urlopen({url!r} + "/other", data=data, timeout=60) as answer:
            return json.loads(answer.read())["choices"][0]["message"]["content"]
"""
"""Of a crew file: a function that asks it in a way that no journal knows."""
