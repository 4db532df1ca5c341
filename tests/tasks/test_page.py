"""A fit that shows its progress to a server that does not answer: it neither waits nor fails."""

import re
import socket
import time
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.local.servers import free_port
from tasks.pages import flow_page as page
from usboost.boosting.rounds import Round


@pytest.fixture(params=["silent", "gone"])
def address(request):
    """Of a server that takes requests and says nothing, and of none at all."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1] if request.param == "silent" else free_port()
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
            yield


def test_a_fit_does_not_wait_for_the_server(address, monkeypatch):
    of = {"flow_run_id": str(uuid4())}  # a real run would need a server that answers
    monkeypatch.setattr(page, "log", lambda text: page._log.info(text, extra=of))
    monkeypatch.setattr(page, "SECONDS", 0.01)
    shown = page.ShowProgress("ci_b 2wl seed 0")
    shown.on_fit_begin(SimpleNamespace(n_rounds=1000))
    started = time.perf_counter()
    for index in range(1, 1001):
        shown.on_round(Round(index, {"risk_train": 0.5}, {"total": 0.0}, None))
    assert time.perf_counter() - started < 5  # where each waited for an answer it would be minutes


@pytest.mark.parametrize(
    "name", ["ci_b/2wl/seed-0", "Ärger__x", "--a--", "usboost-demo-user_table, version 1"]
)
def test_keys_are_as_prefect_allows_them(name):
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", page.key("mlflow", name))
    assert page.key("mlflow", "ci_b/2wl/seed-0") == "mlflow-ci-b-2wl-seed-0"
