"""params.yaml, read and validated once."""

import re
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from usboost.errors import UsboostError, choices
from usboost.files.registry import import_parts
from usboost.files.yaml_file import read_yaml
from usboost.losses.regression import REGRESSION_LOSSES
from usboost.models import catalogue
from usboost.models.entry import Entry
from usboost.models.losses import LOSSES
from usboost.table.spec import TableSpec

BUNDLED = ("iris", "digits_rows", "pendigits", "gunpoint")  # by a library or an archive, in every profile
DATASETS = ("ci_a", "ci_b", "ct", "mi", "digits", "user_table", *BUNDLED)  # see tasks.catalog
LIKE = {"digits": "mi"}  # datasets that have the sections table1 and table2 of another, whose place they take

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
OptimizerName = Literal["sgd", "rmsprop", "adam"]
BackboneName = Literal["small_cnn", "vgg16", "resnet50", "tf_efficientnet_lite0"]
Finetune = Literal["none", "auto", "last", "all"]


class ParamsSection(BaseModel):
    """A section of params.yaml: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Run(ParamsSection):
    datasets: list[str]
    models: list[str]
    models_of: dict[str, list[str]] = {}


class DataSizes(ParamsSection):
    """The sizes of a dataset that is made; null rows are all there are, a null size is the dataset's own."""

    rows_train: Positive | None = None
    rows_test: Positive | None = None
    image_size: Positive | None = None
    dog_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    elimination_rows: Positive = 40_000
    elimination_tolerance: Annotated[float, Field(ge=0)] = 0.01


class UserTableSettings(ParamsSection):
    table: str | None
    label: str
    task: Literal["classification", "regression"] | None = None
    image: str | list[str] | None
    split: str | None
    categorical: list[str]
    text: list[str] = []
    drop: list[str]
    missing: list[str] = []
    images_root: str | None = None
    grey: bool
    skip_unreadable: bool

    def spec(self, **changes: Any) -> TableSpec:
        """Return how the table is read, with these changes."""
        given = self.model_dump()
        root = None if self.images_root is None else Path(self.images_root).expanduser()
        return TableSpec.of(given | {"images_root": root} | changes)


def as_key(name: str, value: str = "") -> str:
    """Write an option of a message as params.yaml has it, ``user_table.group``; others as they are."""
    if name not in UserTableSettings.model_fields:
        return f"`{name}={value}`" if value else f"`{name}`"
    return f"user_table.{name}: {value}" if value else f"user_table.{name}"


class ImagesSection(ParamsSection):
    backbone: BackboneName | None = None
    finetune: Finetune | None
    pretrained: str | bool | None
    size: Positive | None
    augment: Literal["none", "flip", "flip_shift"]


class BoostedNetworks(ParamsSection):
    loss: Literal["squared", "cross_entropy"]
    hidden: Positive
    epochs: Positive
    rounds: Positive


class Early(ParamsSection):
    estimator: Literal["tree", "logistic"]
    max_depth: Positive
    trigger: Literal["probability", "margin"]
    threshold: float


class ExternalBaselines(ParamsSection):
    n_trees: Positive
    learning_rate: Rate
    patience: Positive


class FeatureSizes(ParamsSection):
    trees: Positive | None = None


class TrainingSizes(ParamsSection):
    """Settings of training networks, where they differ from the tables."""

    optimizer: OptimizerName | None = None
    learning_rate: Rate | None = None
    batch_size: Positive | None = None
    backbone: BackboneName | None = None
    head: list[Positive] | None = None
    monitor: Literal["f1", "risk"] | None = None
    patience: Positive | None = None


class NetworkSizes(TrainingSizes):
    epochs: Positive | None = None


class BoostingSizes(TrainingSizes):
    rounds: Positive | None = None
    step: Literal["newton", "bayes", "fixed"] = "newton"
    shrinkage: Rate | None = None
    start: Literal["fresh", "warm"] | None = None


class Profile(ParamsSection):
    """A profile; ``rounds`` are of a user's table; its profile leaves the papers' sections out."""

    seeds: Positive
    data: dict[str, DataSizes]
    rounds: Positive | None = None
    features: FeatureSizes = FeatureSizes()
    networks: NetworkSizes = NetworkSizes()
    boosting: BoostingSizes = BoostingSizes()


class TrainingSection(ParamsSection):
    """Settings of training a table's networks."""

    backbone: BackboneName | None = None
    pretrained: bool = False
    finetune: Finetune = "all"
    optimizer: OptimizerName
    learning_rate: Rate
    batch_size: Positive


class Table1(TrainingSection):
    dnn1: list[Positive]
    dnn2: list[Positive]
    dnn3: list[Positive]
    fusion: Literal["concat", "product"]
    bfv_trees: Positive


class Rounds(ParamsSection):
    first: Positive
    second: Positive


class Table2(TrainingSection):
    dnn: list[Positive]
    tree_depth: Positive
    rounds: Rounds
    n_inner: Positive


class BayesSection(ParamsSection):
    n_random: Positive = 10
    n_guided: Count = 20
    bounds: tuple[float, float] = (0.0, 10.0)


class Boosting(ParamsSection):
    epochs_per_round: Positive
    start: Literal["fresh", "warm"]
    shrinkage: Rate
    sequential: bool = False
    step_fraction: Share = 0.0
    patience: Positive | None
    tree_engine: Literal["lightgbm", "histogram", "sklearn"]
    fixed_step: float
    bayes: BayesSection


class Networks(ParamsSection):
    patience: Positive | None


class Features(ParamsSection):
    engine: Literal["lightgbm", "sklearn"]
    max_depth: Positive
    learning_rate: Rate
    out_of_fold: bool
    folds: Annotated[int, Field(ge=2)]


class LearnerChanges(ParamsSection, extra="allow"):
    """A model's changes of a weak learner; keys besides these are parameters of the learner's class."""

    kind: str | None = None
    reads: tuple[str, ...] | None = None


class Model(ParamsSection):
    """A difference from the catalogue, `usboost.models.catalogue`, for its model, or one that is like it."""

    like: str | None = None
    learners: dict[str, LearnerChanges] = {}
    target: Literal["gradient", "second_order", "newton"] | None = None
    loss: str | None = None
    step: Literal["searched", "fixed", "newton", "bayes"] | None = None
    monitor: Literal["f1", "accuracy", "risk", "rmse", "mae"] | None = None
    shrinkage: Rate | None = None
    sequential: bool | None = None
    step_fraction: Share | None = None
    patience: Positive | None = None
    fixed_step: float | None = None
    bayes: BayesSection | None = None
    features: Literal["staged", "in_sample", "out_of_fold"] | None = None
    views: tuple[str, ...] | None = None
    set: dict[str, Any] = {}

    def of(self, name: str) -> Entry:
        """Return the catalogue's entry with these changes.

        Raises `UsboostError` if the catalogue has no such model, or a change is none of its kind's.
        """
        known, like = ", ".join(catalogue.CATALOGUE), self.like
        if name in catalogue.CATALOGUE and like is not None:
            raise UsboostError(f"models.{name}.like: the catalogue has that model; choose another name")
        if like is None and name not in catalogue.CATALOGUE:
            raise UsboostError(
                f"models.{name} is not in the catalogue; say what it is like, e.g. `like: 2wl`, of {known}"
            )
        if like is not None and like not in catalogue.CATALOGUE:
            raise UsboostError(f"models.{name}.like: unknown model {like!r}; choose among {known}")
        changes = self.model_dump(exclude_none=True, exclude_unset=True, exclude={"like", "learners", "set"})
        learners = {key: each.model_dump(exclude_none=True) for key, each in self.learners.items()}
        return catalogue.find(self.like or name).changed(name, changes, learners, self.set)


class FitsSection(ParamsSection):
    """Settings of running the fits of a dataset."""

    runner: Literal["threads", "processes", "deployments"] = "threads"
    workers: Positive = 2
    deployment: str = "fit-one/fit-one"
    gpu_slots: Positive = 1
    retries: Count = 1


class Settings(ParamsSection):
    """The whole of params.yaml."""

    profile: Literal["demo", "user", "paper"]
    imports: list[str] = []
    run: Run
    profiles: dict[str, Profile]
    seed: int
    user_table: UserTableSettings
    images: ImagesSection
    mi_source: Literal["auto", "ilsvrc2012", "tiny_imagenet_200"]
    table1: dict[str, Table1]
    table2: dict[str, Table2]
    boosting: Boosting
    networks: Networks
    features: Features
    device: str
    external_baselines: ExternalBaselines
    bnn: BoostedNetworks
    earlyboost: Early
    fits: FitsSection = FitsSection()
    models: dict[str, Model]

    @field_validator("models", mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        """Take ``_2wl`` as ``2wl``: a name that begins with a digit is no key for DVC's ``-S``."""
        if not isinstance(given, dict):
            return given
        models: dict[Any, Any] = {}
        for name, own in given.items():
            plain = str(name).removeprefix("_")
            known = plain if plain in catalogue.CATALOGUE else name
            both = isinstance(own, dict) or own is None
            models[known] = {**models.get(known, {}), **(own or {})} if both else own
        return models

    def check(self, imported: bool) -> None:
        """Raise `UsboostError` where sections do not agree; `imported` says whether all losses are known."""
        known = (*LOSSES, *REGRESSION_LOSSES)
        for name, model in self.models.items():
            if not re.fullmatch(r"\w[\w.+-]*", name):
                raise UsboostError(f"models.{name!r}: name a model by letters, digits and . + - _")
            if model.loss not in (None, *known) and (imported or not self.imports):
                raise UsboostError(
                    f"models.{name}.loss: there is no loss {model.loss!r}; choose among {', '.join(known)}"
                )
        given = self.user_table.table is not None
        if self.profile == "demo" and given:
            raise UsboostError(
                "user_table.table names your own table, but profile is demo, which is for generated data; "
                "`python -m flows.local.workspace make FOLDER --profile user --table FILE --label COLUMN` "
                "makes a workspace for it"
            )
        if self.profile == "user" and "user_table" in self.run.datasets and not given:
            raise UsboostError("user_table.table is empty, but profile is user; give the path of your table")
        for name in [*self.models, *self.run.models, *chain(*self.run.models_of.values())]:
            self.model(name)

    @property
    def sizes(self) -> Profile:
        """Return the profile in force."""
        return _entry(self.profiles, "profiles", self.profile)

    def models_of(self, dataset: str) -> list[str]:
        """Return the models that a run fits on a dataset."""
        return self.run.models_of.get(dataset, self.run.models)

    def generated(self, dataset: str) -> bool:
        """Return whether a dataset's raw files are generated: in the demo, unless a library has them."""
        return self.profile == "demo" and dataset not in BUNDLED

    def data_of(self, dataset: str) -> DataSizes:
        return _entry(self.sizes.data, f"profiles.{self.profile}.data", dataset)

    def model(self, name: str) -> Entry:
        """Return the catalogue's entry of a model with the changes of `models`."""
        if name not in catalogue.CATALOGUE and name not in self.models:
            known = ", ".join(dict.fromkeys([*catalogue.CATALOGUE, *self.models]))
            raise UsboostError(
                f"params.yaml has no models.{name}, nor has the catalogue; choose among {known}"
            )
        return self.models.get(name, Model()).of(name)

    def networks_of(self, dataset: str) -> Table1:
        return _entry(self.table1, "table1", LIKE.get(dataset, dataset))

    def boosting_of(self, dataset: str) -> Table2:
        return _entry(self.table2, "table2", LIKE.get(dataset, dataset))


def _entry(section: dict[str, Any], key: str, name: str) -> Any:
    if name not in section:
        raise UsboostError(f"params.yaml has no {key}.{name}; it has {', '.join(section)}")
    return section[name]


def load(path: Path = Path("params.yaml")) -> Settings:
    """Read and check params.yaml, and import the modules that it names under `imports`.

    Raises `UsboostError` if the file is missing, is no YAML, or a key is unknown, missing or of the wrong
    kind.
    """
    return parse(read_yaml(path, "run from the project's folder or a workspace"), path, path.parent)


def model_names(path: Path) -> list[str]:
    """Return the models of the catalogue, and those that a params.yaml adds, if one can be read."""
    try:
        own = read_yaml(path, "")["models"]
    except (UsboostError, KeyError, TypeError):
        own = {}
    return [*catalogue.CATALOGUE, *(n for n in own or {} if n.removeprefix("_") not in catalogue.CATALOGUE)]


def parse(
    document: Any, path: Path = Path("params.yaml"), imports: Path | None = None, agreeing: bool = True
) -> Settings:
    """Return the settings of parsed YAML, whose sections agree; its modules are imported from `imports`."""
    try:
        settings = Settings.model_validate(document)
        if imports is not None:
            import_parts(settings.imports, imports)
        if agreeing:
            settings.check(imports is not None)
    except ValidationError as error:
        # a misspelt key before the key that is missing for it
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        where = f"{path}: {'.'.join(map(str, first['loc']))}"
        if first["type"] == "extra_forbidden":
            section: Any = Settings
            for name in first["loc"][:-1]:  # in a mapping of sections the names may be any
                if field := section.model_fields.get(name):
                    kinds = (field.annotation, *get_args(field.annotation))
                    section = next((each for each in kinds if hasattr(each, "model_fields")), section)
            known = choices(str(first["loc"][-1]), list(section.model_fields))
            raise UsboostError(f"{where}: no such key; {known}") from None
        raise UsboostError(f"{where}: {first['msg']}") from None
    except UsboostError as error:
        raise UsboostError(f"{path}: {error}") from None
    return settings
