"""Prefect's and MLflow's servers of a home, started, killed and ended for real; no training."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from flows.local.servers import answers, free_port
from tests.flows.local.detached import marked, state
from tests.warm import Warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

ADDRESSES = """
from flows.local import runtime
runtime.configure()
import os
from prefect import flow
from prefect.settings import PREFECT_API_URL
@flow
def addresses():
    print(PREFECT_API_URL.value(), os.environ["MLFLOW_TRACKING_URI"], sep="\\n")
runtime.run(addresses)
"""
SLEEP = """
import time
from prefect import flow
@flow
def sleep(seconds: int = 600):
    time.sleep(seconds)
"""
DEPLOYED = """
name: sleeper
pull:
  - prefect.deployments.steps.set_working_directory: {directory: "{{ $USBOOST_CODE }}"}
deployments:
  - {name: long, entrypoint: "sleeper.py:sleep", work_pool: {name: cpu}}
"""


class Home:
    """A home of its own, and commands that use it, each of which imports nothing anew."""

    def __init__(self, folder: Path, warm: Warm, port: int = 0) -> None:
        self.path, self.folder, self.warm = folder / "the home", folder, warm
        dropped = ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI")
        self.environment = {name: os.environ[name] for name in os.environ if name not in dropped} | {
            "USBOOST_HOME": str(self.path),
            "USBOOST_PREFECT_PORT": str(port),
            "USBOOST_MLFLOW_PORT": "0",
            "PYTHONPATH": str(ROOT),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }
        shutil.copy(ROOT / "params.yaml", folder)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.warm.run(words, self.folder, self.environment | environment)

    def ok(self, *words: str, **environment: str) -> str:
        done = self.run(*words, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def services(self, *words: str) -> str:
        return self.ok("-m", "flows.local.services", *words)

    def addresses(self) -> list[str]:
        """Prefect's and MLflow's, as a flow has them."""
        return self.ok("-c", ADDRESSES).splitlines()

    @property
    def server(self) -> psutil.Process:
        (found,) = [pid for pid in marked(self.path) if "--port" in psutil.Process(pid).cmdline()]
        return psutil.Process(found)


@pytest.fixture
def home(tmp_path: Path, warm_flows: Warm) -> Iterator[Home]:
    made = Home(tmp_path, warm_flows)
    warm_flows.wait(made.environment)  # a test may ask twice at once
    yield made
    made.services("stop")
    assert marked(made.path) == []


def test_flows_share_a_server_that_is_started_again_after_a_crash(home: Home) -> None:
    with ThreadPoolExecutor(2) as pool:  # at once, on a new home
        both = pool.map(lambda _: tuple(home.addresses()), range(2))
    (server,) = marked(home.path)
    assert server == home.server.pid
    ((url, store),) = set(both)
    assert store == f"sqlite:///{home.path}/mlflow.db"
    with home.start("-m", "prefect", "config", "view", PREFECT_HOME=str(home.path / "prefect")) as shown:
        assert url in shown.communicate(timeout=300)[0]
    home.server.kill()
    assert home.addresses()[0] == url, "the port stays, and links to pages with it"
    assert home.server.pid != server and marked(home.path) == [home.server.pid]
    assert home.services("stop") == "1 processes ended\n"
    assert home.services("stop") == "0 processes ended\n"
    assert url in (home.path / "prefect/profiles.toml").read_text(), "where the next one finds its port"


@pytest.mark.long
def test_another_homes_server_is_not_taken_for_ours(home: Home, tmp_path: Path) -> None:
    url, _ = home.addresses()
    (tmp_path / "other").mkdir()
    other = Home(tmp_path / "other", home.warm, port=int(url.split(":")[2].removesuffix("/api")))
    (other.path / "prefect").mkdir(parents=True)
    try:
        profiles = home.path / "prefect/profiles.toml"
        shutil.copy(profiles, other.path / "prefect")  # as in a copied home: it names the other's server
        own, _ = other.addresses()
        assert own != url and answers(url) and answers(own)
        other.services("stop")
        assert answers(url) and not answers(own)
        assert other.ok("-c", ADDRESSES, PREFECT_API_URL=url).splitlines()[0] == url, "what is set is used"
        assert marked(other.path) == []
    finally:
        other.services("stop")


def test_a_given_server_that_does_not_answer(home: Home) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/api"
    done = home.run("-c", ADDRESSES, PREFECT_API_URL=nobody)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert nobody in sentence and "PREFECT_API_URL" in sentence
    assert marked(home.path) == []


@pytest.mark.long
def test_the_services_with_a_worker_that_is_killed(home: Home) -> None:
    (home.folder / "sleeper.py").write_text(SLEEP)
    (home.folder / "prefect.yaml").write_text(DEPLOYED)
    url, _ = home.addresses()
    said = home.services("start")
    now = state(home.path)
    assert now["prefect"] == url and f"PREFECT_API_URL={url} prefect deployment run" in said
    assert home.addresses() == [url, now["mlflow"]]
    again = home.run("-m", "flows.local.services", "start")
    assert again.returncode == 1 and "run already" in again.stderr and len(again.stderr.splitlines()) == 1
    pages = home.ok("-m", "flows.local.services", "ui")
    assert now["mlflow"] in pages and url.removesuffix("/api") in pages
    worker, _ = now["workers"]
    assert worker["pool"] == "cpu"
    with home.start("-m", "prefect", "deployment", "run", "sleep/long", PREFECT_API_URL=url) as asked:
        assert asked.wait(timeout=300) == 0
    deadline = time.monotonic() + 120
    while not (runs := psutil.Process(worker["pid"]).children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    (run,) = runs
    psutil.Process(worker["pid"]).kill()
    assert run.is_running(), "it outlives its worker"
    home.services("stop")
    assert marked(home.path) == [] and not run.is_running()
    assert not answers(url) and not answers(now["mlflow"])


def test_services_that_do_not_start_leave_nothing(home: Home) -> None:
    (home.folder / "prefect.yaml").write_text(DEPLOYED)
    with psutil.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", port := str(free_port())]
    ) as other:
        while not other.net_connections():
            time.sleep(0.1)
        done = home.run("-m", "flows.local.services", "start", "--prefect-port", port)
        other.kill()
    assert done.returncode == 1 and f"port {port}" in done.stderr
    assert marked(home.path) == []


def read_until(process: subprocess.Popen[str], word: str) -> str:
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError(f"{''.join(lines)}{process.stderr and process.stderr.read()}")


@pytest.mark.parametrize("ended_by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_the_pages_until_interrupted(home: Home, ended_by: signal.Signals) -> None:
    kept = ended_by == signal.SIGTERM
    if kept:
        home.addresses()
    with home.start("-m", "flows.local.services", "ui") as pages:
        said = read_until(pages, "Ctrl-C")
        urls = [line.split()[1] for line in said.splitlines() if line.startswith(("MLflow  ", "Prefect  "))]
        assert [answers(urls[0].split("/#")[0]), answers(f"{urls[1]}/api")] == [True, True]
        pages.send_signal(ended_by)
        assert pages.wait(timeout=60) == 0
    assert marked(home.path) == ([home.server.pid] if kept else []), "only what it started"
