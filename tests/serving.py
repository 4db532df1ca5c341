"""A server of files on loopback, for downloads that go wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from usboost.datasets import sources


class Server(ThreadingHTTPServer):
    """Answers request k with ``answers[k]``: a status, the body, and how many bytes of it to send.

    The last answer is given to all further requests.
    """

    says_length = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes, int | None]] = []
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/raw.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        status, body, sent = self.server.answers[min(self.server.asked, len(self.server.answers) - 1)]
        self.server.asked += 1
        self.send_response(status)
        if self.server.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that answers until left; downloads reach it directly and do not pause between tries."""
    monkeypatch.setattr(sources, "PAUSE", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
