"""A server of files on loopback, for downloads that go wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import TypeVar

import pytest

from usboost.datasets.files import sources

Server = TypeVar("Server", bound=ThreadingHTTPServer)


@contextmanager
def serving(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Answer in a thread until left; downloads reach the server directly and do not pause between tries."""
    monkeypatch.setattr(sources, "PAUSE", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
