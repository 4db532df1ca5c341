"""A logged model answers the frame that it was fitted to, and bad requests with one sentence."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from mlflow.pyfunc import scoring_server
from PIL import Image

import usboost
from tasks.mlflow_log import signature
from tests.conftest import encoded, refuses
from usboost import MultimodalClassifier

RNG = np.random.default_rng(0)
N = 40
TOLERANCE = 1e-6  # an embedding's last digits depend on how many rows are read together
SERVED = Path(usboost.__file__).parents[1] / "tasks" / "served_model.py"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "size": RNG.normal(size=N),
            "rooms": RNG.integers(1, 9, N),
            "small": RNG.integers(1, 9, N).astype(np.uint8),
            "floor": pd.array([None, *RNG.integers(1, 9, N - 1)], dtype="Int64"),
            "garden": RNG.random(N) < 0.5,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D"),
            "town": pd.Series(RNG.choice(["u", "v"], N)).astype("category"),
            "code": pd.Series(RNG.choice([3, 4], N)).astype("category"),
            "name": pd.Series(RNG.choice(["r", "s"], N), dtype="string"),
            "photo": [encoded(Image.new("RGB", (16, 16), (int(v),) * 3)) for v in RNG.integers(0, 255, N)],
        }
    )


@pytest.fixture(scope="module")
def logged(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The fitted model, and what MLflow loads of it."""
    folder = tmp_path_factory.mktemp("served")
    y = frame["size"] + RNG.normal(size=N) > 0
    model = MultimodalClassifier("logistic", image="photo", size=16, refit=False).fit(frame, y)
    model.save(folder / "bundle")
    mlflow.pyfunc.save_model(
        str(folder / "logged"),
        python_model=str(SERVED),
        artifacts={"bundle": str(folder / "bundle")},
        signature=signature(model.bundle_.card),
        pip_requirements=["numpy"],
        input_example=frame.head(2).assign(
            photo=[base64.b64encode(each).decode() for each in frame["photo"][:2]]
        ),
    )
    return model, mlflow.pyfunc.load_model(str(folder / "logged"))


def test_the_frame_that_was_fitted_to(frame: pd.DataFrame, logged: tuple[Any, Any]) -> None:
    model, loaded = logged
    pd.testing.assert_frame_equal(loaded.predict(frame), model.predict_frame(frame))
    for some in (frame.head(1), frame.iloc[[5, 0]], frame.assign(floor=None, photo=np.nan, day=pd.NaT)):
        found = loaded.predict(some)
        pd.testing.assert_frame_equal(found, model.predict_frame(some).reset_index(drop=True))
    texts = frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d"), town=frame["town"].astype(str))
    pd.testing.assert_frame_equal(loaded.predict(texts), model.predict_frame(frame))
    renamed = frame.rename(columns={"rooms": "romos"})
    refuses(r"^the input lacks column 'rooms', .* did you mean 'romos'\?", loaded.predict, renamed)


@pytest.fixture(scope="module")
def post(logged: tuple[Any, Any]) -> Any:
    client = TestClient(scoring_server.init(logged[1]), raise_server_exceptions=False)

    def send(body: Any, kind: str = "application/json") -> Any:
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return client.post("/invocations", content=data, headers={"Content-Type": kind})

    return send


def record(frame: pd.DataFrame, k: int = 1) -> dict[str, Any]:
    row = json.loads(frame.drop(columns="photo").iloc[[k]].to_json(orient="records", date_format="iso"))[0]
    row["day"] = str(frame["day"].iloc[k].date())
    return {**row, "photo": base64.b64encode(frame["photo"].iloc[k]).decode()}


def test_json_of_every_form(frame: pd.DataFrame, logged: tuple[Any, Any], post: Any) -> None:
    row, expected = record(frame), logged[0].predict_frame(frame.iloc[[1]])["p_True"].iloc[0]
    bodies = [
        {"dataframe_records": [row]},
        {"dataframe_split": {"columns": list(row), "data": [list(row.values())]}},
        {"inputs": [row]},
        {"instances": [row]},
        {"dataframe_records": [{**row, "rooms": float(row["rooms"])}]},
    ]
    for body in bodies:
        answer = post(body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["predictions"][0]["p_True"] == pytest.approx(expected, abs=TOLERANCE)
    gaps = dict.fromkeys(row)
    answer = post({"dataframe_records": [gaps, row]})
    assert answer.json()["predictions"][1]["p_True"] == pytest.approx(expected, abs=TOLERANCE)
    out = io.BytesIO()
    frame.to_parquet(out)
    found = pd.DataFrame(post(out.getvalue(), "application/vnd.apache.parquet").json()["predictions"])
    np.testing.assert_allclose(found["p_True"], logged[0].predict_frame(frame)["p_True"], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": "heavy"}, "the input, row 1, 'heavy': column 'size' held numbers when the model was"),
        ({"size": [1, 2]}, "the input: column 'size' held numbers when the model was fitted; give numbers"),
        ({"photo": "not base64!"}, "the input, row 1: column 'photo' is not base64: 'not base64!'"),
        ({"photo": 5}, "the input: the image column 'photo' must hold paths or bytes, not int64"),
        ({"town": [1]}, "the input: column 'town' is of type list<item: int64>; turn it into numbers"),
        ({"day": "soon"}, "the input, row 1, 'soon': column 'day' held dates when the model was fitted"),
        ({"size": 1e300}, "the input, row 1: column 'size' holds infinity or a number too large; correct it"),
        ({"rooms": ...}, "the input lacks column 'rooms', required by the model or asked for; "),
    ],
)
def test_bad_requests_are_told(frame: pd.DataFrame, post: Any, change: dict[str, Any], sentence: str) -> None:
    row = {name: value for name, value in {**record(frame), **change}.items() if value is not ...}
    answer = post({"dataframe_records": [row]})
    assert answer.status_code == 400
    body = answer.json()
    assert body["message"].startswith(sentence) and "\n" not in body["message"]
    assert "Traceback" not in answer.text and ".py" not in answer.text and "stack_trace" not in body
    assert post({"dataframe_records": [record(frame)]}).status_code == 200


@pytest.mark.parametrize(
    ("column", "change", "same"),
    [
        ("size", "{:e}".format, True),
        ("rooms", float, True),
        ("garden", lambda v: "yes" if v else "no", True),
        ("day", "{}T00:00:00.000".format, True),
        ("town", " {} ".format, True),
        ("photo", "{}\n".format, True),
        ("size", lambda v: None, False),
        ("size", lambda v: True, False),
        ("rooms", lambda v: 2**70, False),
        ("garden", lambda v: [], False),
        ("day", lambda v: "0001-01-01", False),
        ("town", lambda v: 5, False),
        ("code", lambda v: "03", False),
        ("photo", "data:image/png;base64,{}".format, False),
    ],
)
def test_odd_values_are_read_as_predict_does_or_refused_by_name(
    frame: pd.DataFrame, logged: tuple[Any, Any], post: Any, column: str, change: Any, same: bool
) -> None:
    row = record(frame)
    row[column] = change(row[column])
    answer = post({"dataframe_records": [{"more": 1, **row}]})
    if answer.status_code == 400 and not same:
        assert repr(column) in answer.json()["message"]
        refuses(f"'{column}'", logged[0].predict_frame, pd.DataFrame([row]))
        return
    given = frame.iloc[[1]] if same else pd.DataFrame([row])
    expected = logged[0].predict_frame(given)["p_True"].iloc[0]
    assert answer.json()["predictions"][0]["p_True"] == pytest.approx(expected, abs=TOLERANCE)


def test_unreadable_is_logged(frame: pd.DataFrame, post: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = [record(frame, 1), record(frame, 2)]
    rows[1] |= {"size": "heavy", "town": "w", "photo": base64.b64encode(b"none").decode()}
    answer = post({"dataframe_records": rows})
    assert answer.status_code == 200 and len(answer.json()["predictions"]) == 2
    told = [each.getMessage() for each in caplog.records if each.name == "usboost.served"]
    assert told[0].startswith("column 'photo': 1 of 2 images cannot be read and counts as missing:")
    assert told[1:] == [
        "column 'size': 1 of 2 values is no number and counts as missing, in row 2, 'heavy'",
        "column 'town': 1 of 2 rows has a category that was not in the training rows, in row 2, 'w'",
    ]
