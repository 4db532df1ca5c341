"""Addresses of Prefect's pages: of one kind, and those that its server has."""

from fastapi.testclient import TestClient
from prefect.server.api.server import create_ui_app
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

from tasks.pages import mlflow_pages


def test_the_root_of_prefects_pages_leads_to_those_that_are_linked() -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4321/api"}):
        linked = mlflow_pages.prefect("1234")
        assert linked == "http://127.0.0.1:4321/v2/runs/flow-run/1234"
        browser = TestClient(create_ui_app(ephemeral=False), follow_redirects=False)
        asked = {"accept": "text/html"}
        root = browser.get("/", headers=asked)
        assert root.headers["location"] == f"{mlflow_pages.PREFECT_PAGES}/"
        page = browser.get(linked.removeprefix("http://127.0.0.1:4321"), headers=asked)
        assert page.text == browser.get(root.headers["location"], headers=asked).text
        assert page.status_code == 200 and "<html" in page.text


def test_where_a_person_says_prefects_pages_are() -> None:
    with temporary_settings(
        {PREFECT_API_URL: "http://prefect:4200/api", PREFECT_UI_URL: "https://example.org"}
    ):
        assert mlflow_pages.prefect("1234") == "https://example.org/runs/flow-run/1234"


def test_no_page_without_a_server() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL, PREFECT_UI_URL}):
        assert mlflow_pages.prefect("1234") is None
