"""The services on a team's engines: both servers on PostgreSQL, artifacts and a DVC remote on S3."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.local.servers import free_port
from tests.flows.conftest import ROOT, Workspace
from tests.flows.local.detached import marked, state

boto3 = pytest.importorskip("boto3", reason="install usboost[engines]")
psycopg2 = pytest.importorskip("psycopg2", reason="install usboost[engines]")
moto_server = pytest.importorskip("moto.server", reason="install usboost[engines]")

pytestmark = pytest.mark.long

BUCKET = "team"
PREDICT = """
import sys, mlflow
runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
outputs = runs[0].outputs.model_outputs
model = mlflow.pyfunc.load_model(f"models:/{outputs[0].model_id}")
print(len(runs), len(model.predict(model.input_example)))
"""


def binaries() -> Path:
    """The folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.skip("no PostgreSQL here; install the package postgresql")
    return folders[-1]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A throw-away PostgreSQL on loopback with the databases prefect and mlflow; user, host and port."""
    programs = binaries()
    # not among pytest's folders, which are root's alone: initdb refuses root
    with tempfile.TemporaryDirectory(prefix="usboost-postgres-") as name:
        folder, as_user = Path(name), []
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
            as_user = ["runuser", "-u", "postgres", "--"]
        port, data = free_port(), folder / "data"

        def call(program: str, *words: str) -> None:
            command = [*as_user, str(programs / program), *words]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)

        call("initdb", "-D", str(data), "-U", "team", "--auth=trust", "-E", "UTF8")
        options = f"-h 127.0.0.1 -p {port} -k {folder}"
        call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            for database in ("prefect", "mlflow"):
                call("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "team", database)
            yield f"team@127.0.0.1:{port}"
        finally:
            call("pg_ctl", "-D", str(data), "-w", "-m", "fast", "stop")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3 endpoint on loopback with one bucket; its address."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=free_port())
    server.start()
    address = f"http://127.0.0.1:{server._port}"
    try:
        client(address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        server.stop()


def client(address: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        region_name="us-east-1",
    )


def keys(address: str, prefix: str) -> list[str]:
    pages = client(address).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


@pytest.fixture(scope="module")
def team(
    reproduced: Workspace, tmp_path_factory: pytest.TempPathFactory, postgres: str, s3: str
) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("team")
    copied = reproduced.copy(folder / "copy")
    for name in ("flows", "tasks", "usboost"):
        (copied.folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "prefect.yaml", copied.folder)
    own = Workspace(copied.folder, folder / "home")
    own.environment |= {
        "USBOOST_PREFECT_PORT": "0",
        "USBOOST_MLFLOW_PORT": "0",
        "MLFLOW_S3_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    own.flow(
        *("local.services", "start", "--artifacts", f"s3://{BUCKET}/artifacts"),
        PREFECT_SERVER_DATABASE_CONNECTION_URL=f"postgresql+asyncpg://{postgres}/prefect",
        MLFLOW_BACKEND_STORE_URI=f"postgresql+psycopg2://{postgres}/mlflow",
    )
    try:
        own.environment |= {"HOME_OF_SERVICES": str(folder / "home")}
        yield own
    finally:
        own.flow("local.services", "stop", check=False)
        assert not marked(folder / "home")


def rows(postgres: str, database: str, query: str) -> list[tuple[Any, ...]]:
    user, _, place = postgres.partition("@")
    host, _, port = place.partition(":")
    with (
        psycopg2.connect(host=host, port=port, user=user, dbname=database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(query)
        return list(cursor.fetchall())


def test_a_run_is_kept_by_postgresql_and_s3(team: Workspace, postgres: str, s3: str) -> None:
    now = state(team.environment["HOME_OF_SERVICES"])
    team.run(
        *(sys.executable, "-m", "prefect", "deployment", "run", "fit-one/fit-one", "--watch"),
        *("-p", "dataset=ci_b", "-p", "model=2wl"),
        PREFECT_API_URL=now["prefect"],
    )
    assert ("COMPLETED",) in rows(postgres, "prefect", "select state_type::text from flow_run")
    assert rows(postgres, "mlflow", "select status from runs") == [("FINISHED",)]
    stored = keys(s3, "artifacts/")
    assert any(key.endswith("/MLmodel") for key in stored), stored
    assert any(key.endswith(".safetensors") for key in stored), stored
    assert any("/learners/" in key for key in stored), stored
    assert not list(Path(team.environment["HOME_OF_SERVICES"]).rglob("*.db"))
    # a client needs the MLflow server's address and no key of the store
    bare = {"MLFLOW_TRACKING_URI": now["mlflow"], "AWS_ACCESS_KEY_ID": "", "MLFLOW_S3_ENDPOINT_URL": ""}
    assert team.run(sys.executable, "-c", PREDICT, **bare).stdout.split() == ["1", "2"]


def test_data_travel_through_an_s3_remote(team: Workspace, s3: str, tmp_path: Path) -> None:
    pytest.importorskip("dvc_s3", reason="install usboost[s3]")
    team.run("dvc", "remote", "add", "--default", "team", f"s3://{BUCKET}/dvc")
    team.run("dvc", "remote", "modify", "team", "endpointurl", s3)
    team.run("dvc", "push", "--quiet", "data")
    assert keys(s3, "dvc/")
    other = tmp_path / "other"
    other.mkdir()
    for name in ("dvc.yaml", "dvc.lock", "params.yaml", ".dvcignore"):
        shutil.copy(team.folder / name, other)
    shutil.copytree(team.folder / ".dvc", other / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    there = Workspace(other, tmp_path / "home")
    there.environment |= {key: team.environment[key] for key in team.environment if key.startswith("AWS_")}
    there.run("dvc", "pull", "--quiet", "data")
    first, second = (folder / "data/prepared/ci_b" for folder in (team.folder, other))
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
