"""What boosted models share: their stages in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from usboost.boosting.rounds import Stage
from usboost.boosting.stages import read_stages, write_stages
from usboost.errors import UsboostError


class StagewiseModel:
    """A model whose fitted part is ``stages_``; its loss is ``_loss()``."""

    stages_: list[Stage]

    @property
    def n_estimators_(self) -> int:
        """Rounds kept."""
        return len(self.stages_)

    def _loss(self) -> Any:
        raise AttributeError("_loss is defined by each model")

    def _n_outputs(self) -> int:
        """D, the coordinates of f."""
        return int(self._loss().n_outputs)

    def _learner_names(self, index: int) -> set[str]:
        """The learners that the stage of round `index`, from 1, may have."""
        raise AttributeError("_learner_names is defined by each model")

    def _columns_of(self, name: str) -> int | None:
        """How many columns the learner called `name` reads, where that is known."""
        return None

    def _write(self, folder: Path) -> dict[str, Any]:
        return {"stages": write_stages(self.stages_, folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.stages_ = list(read_stages(document["stages"], folder))
        if not self.stages_:
            raise UsboostError("it has no stages")
        n_outputs = self._n_outputs()
        for index, stage in enumerate(self.stages_, start=1):
            wanted = self._learner_names(index)
            if not stage.learners or not set(stage.learners) <= wanted:
                raise UsboostError(
                    f"stage {index} has the learners {sorted(stage.learners)}, not {sorted(wanted)}"
                )
            for name, learner in stage.learners.items():
                learner.check(n_outputs, self._columns_of(name))
                if not np.isfinite(stage.steps[name]):
                    raise UsboostError(f"the step of stage {index} is {stage.steps[name]}")
