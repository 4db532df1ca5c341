"""Prefect's pages: their addresses, and a fit that shows its progress to a server that does not answer."""

import re
import socket
import time
from types import SimpleNamespace
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from prefect.server.api.server import create_ui_app
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

from flows.local.servers import free_port
from tasks import flow_page as page
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


@pytest.mark.parametrize("name", ["ci_b/2wl/seed-0", "Ärger__x", "--a--", "demo-user_table, version 1"])
def test_keys_are_as_prefect_allows_them(name):
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", page.key("mlflow", name))
    assert page.key("mlflow", "ci_b/2wl/seed-0") == "mlflow-ci-b-2wl-seed-0"


def test_the_root_of_prefects_pages_leads_to_those_that_are_linked() -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4321/api"}):
        linked = page.prefect("1234")
        assert linked == "http://127.0.0.1:4321/v2/runs/flow-run/1234"
        browser = TestClient(create_ui_app(ephemeral=False), follow_redirects=False)
        asked = {"accept": "text/html"}
        root = browser.get("/", headers=asked)
        assert root.headers["location"] == f"{page.PREFECT_PAGES}/"
        linked_page = browser.get(linked.removeprefix("http://127.0.0.1:4321"), headers=asked)
        assert linked_page.text == browser.get(root.headers["location"], headers=asked).text
        assert linked_page.status_code == 200 and "<html" in linked_page.text


def test_where_a_person_says_prefects_pages_are() -> None:
    with temporary_settings({PREFECT_API_URL: "http://prefect:4200/api", PREFECT_UI_URL: "https://a.org"}):
        assert page.prefect("1234") == "https://a.org/runs/flow-run/1234"


def test_no_page_without_a_server() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL, PREFECT_UI_URL}):
        assert page.prefect("1234") is None
