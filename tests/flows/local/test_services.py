"""The services on loopback, started and stopped for real; a worker takes a training."""

import base64
import json
import re
import shutil
import sqlite3
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from tests.flows.conftest import ROOT, Workspace, copy_home
from tests.flows.local.detached import state
from tests.flows.test_ranks import SHARDED

pytestmark = pytest.mark.long


def ask(url: str, body: dict | None = None) -> dict | list:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def opened(address: str) -> bool:
    """Whether a browser gets a page there."""
    request = urllib.request.Request(address, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return reply.status == 200


@pytest.fixture(scope="module")
def services(reproduced, tmp_path_factory):
    copy = reproduced.copy(tmp_path_factory.mktemp("services") / "copy")
    shutil.copy(ROOT / "prefect.yaml", copy.folder)
    own = Workspace(copy.folder, tmp_path_factory.mktemp("home") / "of services")
    copy_home(Path(reproduced.environment["USBOOST_HOME"]), Path(own.environment["USBOOST_HOME"]))
    own.environment |= {"PREFECT_WORKER_QUERY_SECONDS": "2"}
    own.environment.pop("PREFECT_API_URL", None)
    try:
        own.flow("local.services", "start", "--prefect-port", "0", "--mlflow-port", "0")
        own.home = Path(own.environment["USBOOST_HOME"])
        own.state = state(own.home)
        yield own
    finally:
        own.flow("local.services", "stop", check=False)


def test_parameters_are_described_for_the_ui(services):
    found = ask(f"{services.state['prefect']}/deployments/filter", {})
    names = {each["entrypoint"].split(":")[1]: each for each in found}
    assert set(names) == {*("data", "fit", "fit_one", "fit_sharded", "tune", "promote", "monitor", "report")}
    for each in found:
        properties = each["parameter_openapi_schema"]["properties"]
        assert (properties or each["name"] == "report") and each["description"]
        assert all(value.get("description") for value in properties.values()), each["entrypoint"]
        for name, value in properties.items():
            # what may be left empty takes null, which the form then sends
            empty = name not in each["parameter_openapi_schema"].get("required", []) and not value.get("type")
            assert value.get("type") or {"type": "null"} in value["anyOf"], (each["entrypoint"], name)
            assert not empty or value["default"] is None
    assert names["fit_one"]["work_pool_name"] == names["tune"]["work_pool_name"] == "gpu"
    assert {names[name]["work_pool_name"] for name in ("data", "fit", "report")} == {"cpu"}
    model = names["fit_one"]["parameter_openapi_schema"]["properties"]["model"]
    assert {"2wl", "crossed"} <= set(model["enum"])
    models = names["fit"]["parameter_openapi_schema"]["properties"]["models"]
    assert models["items"]["enum"] == model["enum"]


IDS = """
import json, mlflow, sys
found = mlflow.search_runs(search_all_experiments=True, output_format="list")
json.dump([run.info.run_id for run in found], sys.stdout)
"""


def flow_runs(api: str) -> set[str]:
    return {run["id"] for run in ask(f"{api}/flow_runs/filter", {})}


def test_the_services_show_what_flows_kept_without_them_and_the_other_way(services, reproduced):
    """`make services` after `make run`, then flows without the services: always the same runs."""

    def runs(store: str) -> set[str]:
        found = services.run(sys.executable, "-c", IDS, MLFLOW_TRACKING_URI=store)
        return set(json.loads(found.stdout))

    database = f"sqlite:///{services.home}/mlflow.db"
    before = runs(f"sqlite:///{reproduced.environment['USBOOST_HOME']}/mlflow.db")
    assert before and before <= runs(services.state["mlflow"]) == runs(database)
    known = flow_runs(services.state["prefect"])
    assert known
    with closing(sqlite3.connect(services.home / "prefect/prefect.db")) as kept:
        assert known == {str(UUID(found)) for (found,) in kept.execute("select id from flow_run")}
    said = services.run(sys.executable, "-m", "flows.local.services", "ui").stdout
    assert services.state["mlflow"] in said and services.state["prefect"].removesuffix("/api") in said
    assert not list(services.folder.rglob("mlflow.db"))


@SHARDED
def test_a_worker_starts_the_ranks_of_one_fit(services):
    g = np.random.default_rng(0)
    (services.folder / "rows").mkdir()
    for part in range(2):
        frame = pd.DataFrame({"a": g.normal(size=200), "b": g.normal(size=200)})
        frame.assign(y=frame["a"] + frame["b"]).to_parquet(services.folder / f"rows/{part}.parquet")
    services.run(
        *(sys.executable, "-m", "prefect", "deployment", "run", "fit-sharded/fit-sharded", "--watch"),
        *("-p", "table=rows/*.parquet", "-p", "label=y", "-p", "out=of ranks", "-p", "shards=2"),
        *("-p", 'options=["--model=2wl_newton", "--rounds=2"]'),
        PREFECT_API_URL=services.state["prefect"],
    )
    assert (services.folder / "of ranks/card.json").is_file()
    found = services.run(
        sys.executable, "-c", RANKS, MLFLOW_TRACKING_URI=services.state["mlflow"]
    ).stdout.split()
    assert found == ["FINISHED", "2.0"]


RANKS = """
import mlflow
(run,) = mlflow.search_runs(experiment_names=["usboost-sharded"], output_format="list")
print(run.info.status, run.data.metrics["ranks/number"])
"""


def test_a_worker_trains_and_the_runs_link_both_ways(services):
    before = flow_runs(services.state["prefect"])
    services.run(
        *(sys.executable, "-m", "prefect", "deployment", "run", "fit/fit", "--watch"),
        *("-p", "dataset=ci_b", "-p", 'models=["2wl_newton"]'),
        PREFECT_API_URL=services.state["prefect"],
    )
    runs = ask(f"{services.state['prefect']}/flow_runs/filter", {})
    (trained,) = [run for run in runs if run["id"] not in before]
    assert trained["state_type"] == "COMPLETED"
    tasks = ask(f"{services.state['prefect']}/task_runs/filter", {})
    assert {each["state_type"] for each in tasks if each["flow_run_id"] == trained["id"]} == {"COMPLETED"}
    api = f"{services.state['mlflow']}/api/2.0/mlflow"
    experiment = ask(f"{api}/experiments/get-by-name?experiment_name=usboost-demo")
    body = {"experiment_ids": [experiment["experiment"]["experiment_id"]]}
    tagged = [
        ({each["key"]: each["value"] for each in run["data"]["tags"]}, run["info"]["status"])
        for run in ask(f"{api}/runs/search", body)["runs"]
    ]
    ((tags, status),) = [each for each in tagged if each[0].get("prefect.flow_run_id") == trained["id"]]
    assert status == "FINISHED"
    page = f"{services.state['prefect'].removesuffix('/api')}/v2/runs/flow-run/{trained['id']}"
    assert f"]({page})" in tags["mlflow.note.content"]
    assert "`python -m flows.fit ci_b --model 2wl_newton --seeds 1`" in tags["mlflow.note.content"]
    assert opened(page)


def pages(services) -> dict[str, str]:
    """What a user reads, by where: MLflow's descriptions, Prefect's artifacts and log lines, reports."""
    found = {}
    api = f"{services.state['mlflow']}/api/2.0/mlflow"
    experiments = ask(f"{api}/experiments/search?max_results=100")["experiments"]
    body = {"experiment_ids": [each["experiment_id"] for each in experiments], "max_results": 500}
    listed = [(f"experiment {each['name']}", each.get("tags", [])) for each in experiments]
    listed += [
        (f"run {each['info']['run_id']}", each["data"]["tags"])
        for each in ask(f"{api}/runs/search", body)["runs"]
    ]
    for where, tags in listed:
        found[where] = {tag["key"]: tag["value"] for tag in tags}.get("mlflow.note.content", "")
    for model in ask(f"{api}/registered-models/search?max_results=100").get("registered_models", []):
        found[f"model {model['name']}"] = model.get("description", "")
        for version in model.get("latest_versions", []):
            found[f"model {model['name']} {version['version']}"] = version.get("description", "")
    for each in ask(f"{services.state['prefect']}/artifacts/filter", {"limit": 200}):
        found[f"artifact {each['key']} {each['id']}"] = f"{each['description']} {each['data']}"
    for each in ask(f"{services.state['prefect']}/logs/filter", {"limit": 200}):
        found[f"log {each['id']}"] = each["message"]
    for kind in ("*.html", "*.md"):
        for path in sorted((services.folder / "reports").glob(kind)):
            found[f"file {path}"] = path.read_text()
    return found


def follow(address: str, where: str, services) -> str:
    """What the address is of, after asking for it; fails if it is not there."""
    prefect, mlflow = services.state["prefect"], services.state["mlflow"]
    if address.startswith("#/"):  # of MLflow's own pages
        address = f"{mlflow}/{address}"
    if flow_run := re.search(r"/runs/flow-run/([\w-]+)$", address):
        assert ask(f"{prefect}/flow_runs/{flow_run[1]}")["id"] == flow_run[1]
        if address.startswith(prefect.removesuffix("/api")):
            assert opened(address)
        return "flow run"
    if found := re.fullmatch(r"https?://[^/]+/#/experiments/(\d+)(?:/runs/(\w+))?([/?].*)?", address):
        experiment, run, rest = found.groups()
        if address.startswith(mlflow):  # one of a run without servers is where `make ui` shows it
            assert opened(address)
        known = ask(f"{mlflow}/api/2.0/mlflow/experiments/get?experiment_id={experiment}")["experiment"]
        if view := re.search(r"viewStateShareKey=([\w-]+)", rest or ""):
            assert f"mlflow.sharedViewState.{view[1]}" in {tag["key"] for tag in known["tags"]}
        if run is None:
            return "experiment"
        got = ask(f"{mlflow}/api/2.0/mlflow/runs/get?run_id={run}")["run"]
        assert got["info"]["experiment_id"] == experiment
        return "run"
    if found := re.fullmatch(r"https?://[^/]+/#/models/([^/]+)/versions/(\d+)", address):
        got = ask(f"{mlflow}/api/2.0/mlflow/model-versions/get?name={found[1]}&version={found[2]}")
        assert got["model_version"]["name"] == found[1]
        return "model version"
    kind, _, file = where.partition(" ")
    assert kind == "file" and not re.match(r"\w+:", address), address
    path, _, anchor = address.partition("#")
    target = (Path(file).parent / path) if path else Path(file)
    assert target.exists()
    assert not anchor or f'id="{anchor}"' in target.read_text()
    return "file"


HTML_LINK = r'href="([^"]+)"'
TEXT_LINK = r"(?:(?<=\]\()[^)\s]+|\bhttps?://[^\s)\]\"<>]+)"


def test_every_link_leads_to_what_it_names(services):
    services.params(lambda p: p["models"]["2wl"].update(shrinkage=0.7))
    services.run(sys.executable, "-m", "dvc", "repro", "report")
    services.flow("promote", "ci_b")
    followed, stages = {}, set()
    for where, text in pages(services).items():
        links = re.findall(HTML_LINK if where.endswith(".html") else TEXT_LINK, text)
        for address in dict.fromkeys(links):
            kind = follow(address.replace("&amp;", "&"), where, services)
            followed.setdefault((where.split()[0], kind), []).append(address)
        stages |= set(re.findall(r"DVC stage:? `([^`]+)`", text))
    assert set(followed) >= {
        *(("run", "flow run"), ("experiment", "experiment"), ("log", "run")),
        *(("artifact", "run"), ("artifact", "model version")),
        *(("file", "run"), ("file", "flow run"), ("file", "file")),
    }
    listed = services.run(sys.executable, "-m", "dvc", "stage", "list", "--name-only").stdout.split()
    assert stages and stages <= set(listed)


def test_a_second_start_is_refused(services):
    again = services.flow("local.services", "start", "--prefect-port", "0", "--mlflow-port", "0", check=False)
    assert again.returncode == 1
    assert "run already" in again.stderr
    assert len(again.stderr.strip().splitlines()) == 1


PASSWORD = "a-long-password"
KNOWN = {
    "PREFECT_API_AUTH_STRING": f"team:{PASSWORD}",
    "MLFLOW_TRACKING_USERNAME": "team",
    "MLFLOW_TRACKING_PASSWORD": PASSWORD,
}


def status_of(url: str, password: str | None = None) -> int:
    """Of the reply to a request that lists flows or experiments."""
    token = base64.b64encode(f"team:{password}".encode()).decode()
    header = {"Authorization": f"Basic {token}"} if password else {}
    path, body = (
        ("/flows/filter", b"{}") if url.endswith("/api") else ("/api/2.0/mlflow/experiments/search", None)
    )
    query = "" if body else "?max_results=1"
    request = urllib.request.Request(url + path + query, body, {"Content-Type": "application/json", **header})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_without_a_password_nobody_is_let_in(services, tmp_path):
    pytest.importorskip("flask_wtf", reason="install usboost[auth]")
    own = Workspace(services.folder, tmp_path / "home")
    own.environment |= {"PREFECT_WORKER_QUERY_SECONDS": "2"}
    start = ("local.services", "start", "--prefect-port", "0", "--mlflow-port", "0", "--auth")
    refused = own.flow(*start, check=False)
    assert refused.returncode == 1 and "PREFECT_API_AUTH_STRING is not set" in refused.stderr
    short = own.flow(*start, check=False, **{**KNOWN, "MLFLOW_TRACKING_PASSWORD": "short"})
    assert short.returncode == 1 and "12 characters" in short.stderr
    try:
        own.flow(*start, **KNOWN)
        now = state(tmp_path / "home")
        for server in (now["prefect"], now["mlflow"]):
            assert [status_of(server, word) for word in (None, "another", PASSWORD)] == [401, 401, 200]
        trained = ["deployment", "run", "fit-one/fit-one", "--watch", "-p", "dataset=ci_b", "-p", "model=2wl"]
        words = [sys.executable, "-m", "prefect", *trained]
        assert own.run(*words, check=False, PREFECT_API_URL=now["prefect"]).returncode
        own.run(*words, PREFECT_API_URL=now["prefect"], **KNOWN)
        shutil.rmtree(own.folder / "data/results/ci_b/lgbm")
        own.flow("fit", "ci_b", "--model=lgbm", **KNOWN)
        code = "import mlflow; print(len(mlflow.search_runs(search_all_experiments=True)))"
        counted = own.run(sys.executable, "-c", code, MLFLOW_TRACKING_URI=now["mlflow"], **KNOWN)
        assert counted.stdout.split() == ["2"]
        written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
        assert not [path for path in written if PASSWORD.encode() in path.read_bytes()]
        anybody = own.flow("fit", "ci_b", "--model=lgbm", check=False)
        assert anybody.returncode == 1 and len(anybody.stderr.strip().splitlines()) == 1, anybody.stderr
    finally:
        own.flow("local.services", "stop", check=False)
