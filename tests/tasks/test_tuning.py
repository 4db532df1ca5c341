"""What a search found, in params.yaml."""

import shutil
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks import settings, tuning
from tasks.fits import models
from usboost.errors import UsboostError
from usboost.models.entry import settings_text

PARAMS = Path(__file__).parents[2] / "params.yaml"
CHOSEN: dict[str, dict[str, object]] = {
    "2wl": {"shrinkage": 0.3},
    "crossed": {"shrinkage": 5e-05, "learners__S__max_leaves": None, "learners__U__hidden": (64, 32)},
    "lgbm": {"learning_rate": 0.0123},
}


def test_it_is_applied_and_comments_stay(tmp_path: Path) -> None:
    params, chosen = tmp_path / "params.yaml", tmp_path / "settings.yaml"
    shutil.copy(PARAMS, params)
    chosen.write_text(settings_text(CHOSEN, "of a\ntest"))
    tuning.apply(chosen, params)
    before, after = PARAMS.read_text(), params.read_text()
    assert [line.split("#")[1] for line in before.splitlines() if "#" in line] == [
        line.split("#")[1] for line in after.splitlines() if "#" in line
    ]
    built = models.build("crossed", "ci_a", settings.load(params), 0)
    assert (built.shrinkage, built.learners["S"].max_leaves) == (5e-05, None)
    assert built.learners["U"].hidden == (64, 32)
    assert models.build("lgbm", "ci_a", settings.load(params), 0).learning_rate == 0.0123
    assert models.build("lgbm_s", "ci_a", settings.load(params), 0).learning_rate == 0.05
    tuning.apply(chosen, params)
    assert params.read_text() == after


def test_dvc_takes_it_as_overrides(tmp_path: Path) -> None:
    """With what params.yaml has beside it left as it is."""
    params, applied, chosen = (tmp_path / name for name in ("params.yaml", "applied.yaml", "settings.yaml"))
    chosen.write_text(settings_text(CHOSEN, "of a\ntest"))
    for path in (params, applied):
        shutil.copy(PARAMS, path)
    apply_overrides(params, tuning.overrides(chosen))
    tuning.apply(chosen, applied)
    assert settings.load(params) == settings.load(applied) != settings.load(PARAMS)


def test_a_setting_that_a_model_does_not_have(tmp_path: Path) -> None:
    document = yaml.safe_load(PARAMS.read_text())
    document["models"]["mine"] = {"like": "crossed", "set": {"learners__S__depth": 3}}
    with pytest.raises(
        UsboostError, match=r"^mine has no setting 'learners__S__depth'; did you mean .*max_depth"
    ):
        models.build("mine", "ci_a", settings.parse(document), 0)
