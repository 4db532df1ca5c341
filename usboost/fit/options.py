"""Options of fits to a table: what commands and estimators ask of a user, each thing written once.

Nothing heavy is imported: the command line makes its options of the fields with a `Help`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from usboost.errors import UsboostError
from usboost.table.spec import SIZE, Help, Options, TableSpec


@dataclass(frozen=True)
class ImageOptions(Options):
    """Options of how models read images.

    Attributes
    ----------
    backbone : the network that turns an image into an embedding.
    finetune : what of it is tuned on the label before a model is fitted, "none", its "last" blocks or "all";
        "auto" is "last" where that takes some minutes, see `usboost.learners.networks.finetuning`.
    size : that of the table, whose "auto" a backbone hears of.
    """

    backbone: Annotated[str, Help("Network that reads the images, by its name in timm.")] = (
        "tf_efficientnet_lite0"
    )
    finetune: Annotated[
        Literal["auto", "none", "last", "all"],
        Help(
            "What of the backbone is tuned on the label: none, its last blocks, or all of it; auto is last "
            "where that takes some minutes."
        ),
    ] = "auto"
    size: Literal["auto"] | int = SIZE

    def check(self, spec: TableSpec) -> None:
        """Raise UsboostError if an option of images is given, of these or the table's, and no such column."""
        fields: dict[str, Any] = dict.fromkeys(("backbone", "finetune"), self)
        fields |= dict.fromkeys(("size", "grey", "images_root", "skip_unreadable"), spec)
        for name, given in fields.items():
            if not spec.image and getattr(given, name) != getattr(type(given), name):
                raise UsboostError(f"`{name}` is of images; name their column with `image`")

    def for_preset(self, preset: str | None) -> Self:
        """Return the options of a preset: of "fast" images are not tuned unless that was asked for."""
        return replace(self, finetune="none") if preset == "fast" and self.finetune == "auto" else self


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(Options):
    """Options of what predictions become on the way to answers, and whether the model is fitted again.

    Raises `UsboostError` if the threshold is neither "f1" nor a number from 0 to 1, also as text.

    Attributes
    ----------
    seed : of the split, and of a model that is built for it.
    calibrate : whether probabilities are tempered where that helps on rows that were not fitted to.
    threshold : of two classes, from which probability of the second on it is the answer: "f1" takes the
        one with the best F1 on the validation rows; by default the more probable class is the answer.
    refit : whether the model is fitted again to all rows, as far as the validation rows let it go. Scores,
        temperature, threshold, sets and margin stay those of the first fit, which did not see the validation
        rows. Of few rows, folds say how far it goes, and these are of the rows left out of them, see
        `usboost.fit.refit`. By default it is, except where a callback asks one of the two fits to
        stop before its end, or leaves no time for the second: then the first is kept. Of an ensemble the
        members kept are, and the fits to folds stay.
    class_weight : "balanced", or a weight for each class by its name, times the rows' own in the fit and in
        early stopping. Calibration, threshold and scores are without, on the classes as frequent as they
        are; but a temperature moves no class's share, so that probabilities lean to those of large weight.
    """

    seed: Annotated[int, Help("Seed of splits and models.", least=0)] = 0
    calibrate: Annotated[
        bool, Help("Calibrate probabilities (temperature scaling) where that helps on validation rows.")
    ] = True
    threshold: Annotated[
        Literal["f1"] | float | None,
        Help(
            "Of two classes, probability of the positive one from which it is the answer: a number, or f1 "
            "for the best F1 on the validation rows.",
            typed=str | None,
        ),
    ] = None
    refit: Annotated[
        bool | None,
        Help(
            "Fit again to all rows, for as many rounds as the validation rows chose; by default if there is "
            "time. Of a blend, its members."
        ),
    ] = None
    class_weight: Annotated[
        Literal["balanced"] | Mapping[str, float] | None,
        Help("Let all classes count alike in the fit, however rare.", typed=Literal["balanced"] | None),
    ] = None

    def __post_init__(self) -> None:
        given = self.threshold
        if given is None or given == "f1":
            return
        try:
            threshold = float(given)
        except (TypeError, ValueError):
            threshold = -1.0
        if not 0 <= threshold <= 1:
            raise UsboostError(f"`threshold={given!r}` must be f1 or a number from 0 to 1")
        object.__setattr__(self, "threshold", threshold)


@dataclass(frozen=True, kw_only=True)
class FitOptions(AnswerOptions):
    """Options of how a model is built by its name and fitted.

    Attributes
    ----------
    rounds, learners, settings : see `usboost.fit.build.build`.
    device : of networks, see `usboost.learners.networks.train.pick_device`.
    """

    rounds: Annotated[
        int | None, Help("Most boosting rounds, epochs or trees; still stops early.", least=1)
    ] = None
    learners: Mapping[str, str] | None = None
    settings: Mapping[str, Any] | None = None
    device: Annotated[str, Help("Of networks: auto (a GPU if there is one), cpu or cuda.")] = "auto"
