"""Who may use the services: a name and password, in the environment of servers, workers and flows."""

from __future__ import annotations

import base64
import os
import secrets
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from usboost.errors import UsboostError
from usboost.files import write_atomically

PREFECT = "PREFECT_API_AUTH_STRING"
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
MLFLOW = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
SHORTEST = 12  # characters; MLflow takes no shorter password

CONFIGURATION = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
grant_default_workspace_access = false
"""


def given() -> list[str]:
    """What a client of both servers has in its environment: Prefect's ``name:password``, MLflow's two.

    Raises `UsboostError` if one is missing.
    """
    names = (PREFECT, *MLFLOW)
    if missing := [name for name in names if not os.environ.get(name)]:
        raise UsboostError(
            f"the services ask for a password, and {missing[0]} is not set in the environment; "
            "see docs/team.md"
        )
    return [os.environ[name] for name in names]


def of_servers(folder: Path) -> dict[str, str]:
    """What both servers' environments have besides, so that they refuse who does not know the password.

    Raises `UsboostError` if the environment has no names and passwords that the servers take, or a package is
    missing.

    Parameters
    ----------
    folder : where MLflow keeps its users; no password is written there, but MLflow's hash of it.
    """
    prefect, user, password = given()
    if ":" not in prefect or not prefect.isascii():
        raise UsboostError(f"{PREFECT} is not of the form name:password, in ASCII")
    if len(password) < SHORTEST:
        raise UsboostError(f"{MLFLOW[1]} is shorter than {SHORTEST} characters, MLflow's minimum")
    if find_spec("flask_wtf") is None:
        raise UsboostError("MLflow's server asks for a password with Flask-WTF; pip install 'usboost[auth]'")
    folder.chmod(0o700)  # of the hash, too, others on this machine need not know
    configuration = folder / "mlflow-auth.ini"
    text = CONFIGURATION.format(users=folder / "mlflow-users.db")
    write_atomically(configuration, text.encode())
    return {
        SERVER: prefect,
        "MLFLOW_AUTH_CONFIG_PATH": str(configuration),
        "MLFLOW_AUTH_ADMIN_USERNAME": user,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(),
    }


def check(mlflow: str, folder: Path) -> None:
    """Ask MLflow's server as a client does.

    Raises `UsboostError` if it refuses: it knows the user from before, by another password.
    """
    token = basic(":".join(os.environ[name] for name in MLFLOW))
    url = f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    try:
        urllib.request.urlopen(urllib.request.Request(url, headers=token), timeout=20).close()
    except OSError as error:
        raise UsboostError(
            f"MLflow's server refuses {MLFLOW[0]} ({error}); it keeps the password of its first start: "
            f"give that, or delete {folder / 'mlflow-users.db'}"
        ) from None


def of_client() -> dict[str, str]:
    """The header of a request to Prefect's API, where the environment has a password for it."""
    return basic(os.environ[PREFECT]) if os.environ.get(PREFECT) else {}


def basic(pair: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
