"""The container files, without Docker: what they name exists, ports are on loopback, no password is there."""

import json
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?+])((?:[^{}]|\$\{\w+\})*))?\}")
PLACEHOLDER = re.compile(r"\{\{ (\w+) \}\}")
SECRET = re.compile(r"PASSWORD|SECRET|AUTH_STRING")


def filled(text: str) -> str:
    """Compose's variables as they are by default, and where they have to be set."""
    return VARIABLE.sub(lambda found: found[3] if found[2] == "-" else f"<{found[1]}>", text)


def services(*files: str) -> dict[str, dict[str, Any]]:
    documents = [yaml.safe_load(filled((DEPLOY / file).read_text())) for file in files]
    return {name: service for document in documents for name, service in document["services"].items()}


def instructions() -> list[list[str]]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def reaches_the_image(path: str) -> bool:
    """Whether .dockerignore lets a file into the build; its last line that fits decides."""
    lets = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.removeprefix("!")
        if line and not line.startswith("#") and (fnmatch(path, rule) or path.startswith(f"{rule}/")):
            lets = line.startswith("!")
    return lets


def test_the_image_is_made_of_files_that_are_there() -> None:
    copied = [line[1:-1] for line in instructions() if line[0] == "COPY" and not line[1].startswith("--")]
    sources = [source for line in copied for source in line]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for source in sources:
        assert (ROOT / source).exists(), source
        files = [name for name in tracked if name == source or name.startswith(f"{source}/")]
        assert not tracked or files, f"{source} is not in git"
        assert all(map(reaches_the_image, files)), source
    assert {"usboost", "tasks", "flows", "dvc.yaml", "params.yaml", "prefect.yaml"} <= set(sources)
    assert not reaches_the_image("deploy/.env") and not reaches_the_image("data/raw/table.csv")


def test_the_image_installs_extras_that_are_there_and_runs_as_nobody_special() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (install,) = (line for line in instructions() if "--extra" in line)
    named = {install[k + 1] for k, word in enumerate(install) if word == "--extra"}
    assert {"pipeline", "auth", "postgres", "s3", "kubernetes"} <= named <= set(extras)
    users = [line[1] for line in instructions() if line[0] == "USER"]
    assert users and users[-1].isdigit() and users[-1] != "0"


def test_services_need_each_other_and_volumes_that_are_there() -> None:
    found = services("compose.yaml")
    volumes = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["volumes"]
    assert {"postgres", "minio", "prefect", "mlflow", "worker-cpu", "worker-gpu"} <= set(found)
    for name, service in found.items():
        for other, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in found[other], f"{name} waits for {other}"
            else:
                assert found[other].get("restart", "no") == "no", f"{name} waits for {other} to end"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in volumes, volume
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} listens beyond this machine: {port}"
    assert set(services("compose.cuda.yaml")) <= set(found)


def test_commands_are_of_programs_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in services("compose.yaml").values():
        if service["image"].startswith("usboost:"):
            words = service["command"] if isinstance(service["command"], str) else service["command"][0]
            program = words.split()[0]
            assert program in ("prefect", "mlflow") or (ROOT / program.removeprefix("/usboost/")).is_file()
    script = (DEPLOY / "prepare.sh").read_text()
    assert subprocess.run(["sh", "-n", DEPLOY / "prepare.sh"]).returncode == 0
    assert (DEPLOY / "prepare.sh").stat().st_mode & 0o111
    for module in re.findall(r"python -m ([\w.]+)", script):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
    pools = {
        each["work_pool"]["name"]
        for each in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    }
    (made,) = re.findall(r"for pool in ([\w ]+);", script)
    assert pools <= set(made.split())


def test_passwords_come_from_a_file_that_git_ignores() -> None:
    known = set(re.findall(r"^(\w+)=", (DEPLOY / "env.example").read_text(), re.M))
    texts = [(DEPLOY / name).read_text() for name in ("compose.yaml", "compose.cuda.yaml")]
    required = {found[1] for text in texts for found in VARIABLE.finditer(text) if found[2] == "?"}
    assert required == known
    for name, service in services("compose.yaml").items():
        for key, value in service.get("environment", {}).items():
            if SECRET.search(key) or "://usboost:" in value:
                assert re.search(r"<\w+>", value), f"{name} has {key} in the file"
    assert re.search(r"^\*\.env$", (ROOT / ".gitignore").read_text(), re.M)
    assert not re.search(r"password *= *\S", (DEPLOY / "mlflow-auth.ini").read_text())


def test_the_jobs_placeholders_are_the_pools_variables() -> None:
    text = (DEPLOY / "kubernetes-pool.json").read_text()
    template = json.loads(text)
    variables = template["variables"]["properties"]
    assert set(PLACEHOLDER.findall(text)) == set(variables)
    assert text.count('"default": 0') == 1, "docs/team.md changes the number of GPUs there"
    job = template["job_configuration"]["job_manifest"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], container["name"]) == ("Job", "prefect-job"), "Prefect refuses other names"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}


def test_the_job_of_one_fit_on_many_machines() -> None:
    job = yaml.safe_load((DEPLOY / "pytorchjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    assert {each["restartPolicy"] for each in replicas.values()} == {"OnFailure"}
    pod = replicas["Master"]["template"]["spec"]
    assert replicas["Worker"]["template"]["spec"] == pod
    (container,) = pod["containers"]
    assert container["name"] == "pytorch", "the operator refuses other names"
    pool = json.loads((DEPLOY / "kubernetes-pool.json").read_text())
    assert container["image"] == pool["variables"]["properties"]["image"]["default"]
    mounted = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    # torchrun has the numbers of machines and processes from the operator
    assert container["command"][:4] == ["torchrun", "-m", "usboost", "fit"]
    words = container["args"]
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert set(given) == {"--label", "--out", "--shards"}
    assert Path(container["command"][4]).parent == mounted["rows"]
    assert Path(given["--out"]).parent == mounted["models"]
    machines = sum(each["replicas"] for each in replicas.values())
    assert machines * int(job["spec"]["nprocPerNode"]) <= int(given["--shards"])
    assert container["resources"]["limits"]["cpu"] == job["spec"]["nprocPerNode"]
