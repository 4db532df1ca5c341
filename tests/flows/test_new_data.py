"""Nightly fits: a table that has grown is read again, and only then is anything fitted."""

import json

import pandas as pd
import pytest

pytestmark = pytest.mark.long


@pytest.fixture
def own(workspace):
    """A workspace with a user's table beside it, of the demo's rows and images."""
    raw = workspace.folder / "data/raw/user_table"
    table = pd.read_csv(raw / "table.csv").drop(columns="split")
    (workspace.folder / "mine").mkdir()
    (raw / "images").rename(workspace.folder / "mine/images")
    table.to_csv(workspace.folder / "mine/table.csv", index=False)
    roles = {"table": "mine/table.csv", "label": "batch", "image": "image"}

    def mine(p):
        p["profile"] = "user"
        p["user_table"].update(roles)
        p["profiles"]["user"]["data"]["user_table"]["image_size"] = 32

    workspace.params(mine)
    return workspace


def nightly(own, check=True):
    return own.flow("fit", "user_table", "--model=lgbm", "--new-data", check=check)


def rows(own) -> int:
    card = json.loads((own.folder / "data/prepared/user_table/card.json").read_text())
    return sum(split["rows"] for split in card["splits"].values())


def test_new_rows_are_prepared_and_fitted_and_without_any_nothing_is(own):
    nightly(own)
    before = rows(own)
    assert "0 of 1 fits to make" in nightly(own).stdout
    table = pd.read_csv(own.folder / "mine/table.csv")
    pd.concat([table, table.head(30)]).to_csv(own.folder / "mine/table.csv", index=False)
    assert "1 of 1 fits to make" in nightly(own).stdout
    assert rows(own) == before + 30
    (own.folder / "mine/table.csv").unlink()
    gone = nightly(own, check=False)
    assert gone.returncode == 1
    assert "the table mine/table.csv" in gone.stderr.splitlines()[-1]
