"""Spaces, and settings by path."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from usboost.boosting.checkpoint import described
from usboost.errors import UsboostError
from usboost.fit.build import OneComputer
from usboost.fit.options import ImageOptions
from usboost.fit.trials import JOURNAL, ModelTrials, Trials, own_values, space_of
from usboost.learners.search_space import Choice, Dimension, Integer, Real, Space
from usboost.learners.tree_learner import TreeLearner
from usboost.models import build as builders
from usboost.models import catalogue
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.settings import settable, with_settings

SIDES = {"images": (OneComputer(ImageOptions()), ("U",)), "a table": (OneComputer(None), ())}
OFFERED = [(name, task) for task in catalogue.OFFERED_FOR for name in catalogue.OFFERED_FOR[task]]


def declared(model: Any, path: str) -> Any:
    """The dimension as the part's class has it."""
    parts, values = path.split("__"), model.get_params(deep=True)
    for k in range(len(parts)):
        owner = values.get("__".join(parts[:k])) if k else model
        space = getattr(owner, "space", {})
        if "__".join(parts[k:]) in space:
            return space["__".join(parts[k:])]
    raise AssertionError(path)


def corners_of(dimension: Dimension) -> tuple[Any, ...]:
    """The extreme values of a range, or all values of a choice."""
    return dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_every_entry_lies_in_its_space_and_every_corner_builds(side: str) -> None:
    parts, images = SIDES[side]
    for name, task in OFFERED:
        model = builders.build(name, parts, 3, task)
        space = space_of(model, images)
        own = own_values(model, space)
        for path, dimension in space.items():
            # no limit on leaves is kept by the models that have none, and offered to no other
            unlimited = own[path] is None and path.endswith("max_leaves")
            whole = declared(model, path)
            assert unlimited or whole.widened(own[path]) == whole, (name, path, own[path])
            for value in corners_of(dimension):
                changed = with_settings(clone(model), {path: value}, name)
                assert own_values(changed, space) == {**own, path: value}
                assert described(changed) != described(model) or own[path] == value
        assert described(with_settings(clone(model), own, name)) == described(model)


def test_what_is_fixed_or_of_another_kind_is_not_chosen() -> None:
    class Own(TreeLearner):
        kind: ClassVar[str] = "own"
        space: ClassVar[Space] = {"max_depth": Integer(2, 4), "engine": Real(0, 1), "gone": Real(0, 1)}

    model = TwoWeakLearnerClassifier({"S": Own(max_depth=9)}, shrinkage=0.5)
    depth = Integer(2, 9)
    assert space_of(model) == {"shrinkage": Real(0.03, 1.0, log=True), "learners__S__max_depth": depth}
    assert set(space_of(model, (), {"shrinkage"})) == {"learners__S__max_depth"}


def test_paths_of_learners_are_scikit_learns() -> None:
    model = builders.build("crossed", OneComputer(None))
    copy = clone(model).set_params(learners__S__max_depth=2, shrinkage=0.7)
    assert (copy.learners["S"].max_depth, copy.shrinkage) == (2, 0.7)
    assert model.learners["S"].max_depth == 12
    assert model.get_params()["learners__S"] is model.learners["S"]
    replaced = clone(model).set_params(learners__U=TreeLearner(), learners__U__max_depth=5)
    assert replaced.learners["U"].max_depth == 5
    assert all(path in settable(model) for path in ("shrinkage", "learners__S__max_depth", "monitor"))
    assert not {"learners", "learners__S", "random_state", "callbacks"} & set(settable(model))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("shrinkag", 1, "^crossed has no setting 'shrinkag'; did you mean 'shrinkage'.*lists all 32$"),
        ("learners__T__max_depth", 1, "'learners__T__max_depth'; did you mean 'learners__S__max_depth'"),
        ("learners__S__depth", 1, "^crossed .*'learners__S__depth'; did you mean 'learners__S__max_depth'"),
        ("shrinkage__x", 1, "^crossed has no setting 'shrinkage__x'"),
        ("random_state", 1, "^crossed has no setting 'random_state'"),
        ("learners", {}, "^crossed: learners is a part of the model; set a parameter of it"),
        ("shrinkage", "much", "^crossed: shrinkage cannot be 'much'; it is 0.1 now"),
        ("learners__S__max_depth", 2.5, "^crossed: learners__S__max_depth cannot be 2.5; it is 12 now"),
    ],
)
def test_settings_that_a_model_does_not_have(path: str, value: Any, said: str) -> None:
    with pytest.raises(UsboostError, match=said):
        builders.build(catalogue.find("crossed").changed("crossed", {}, {}, {path: value}), OneComputer(None))


dimensions = st.one_of(
    st.tuples(st.floats(0.001, 1), st.floats(1, 1000), st.booleans()).map(lambda v: Real(*v)),
    st.tuples(st.integers(1, 9), st.integers(10, 500), st.booleans()).map(lambda v: Integer(*v)),
    st.tuples(st.integers(2, 5), st.booleans()).map(
        lambda v: Choice((None, (32,), (100, 50), "a", 0.5)[: v[0]], v[1])
    ),
)


def asked(folder: Path, space: Space, own: dict[str, Any], loss: Any, batches: int, seed: int) -> list[Any]:
    """The settings of a search in batches of four."""
    trials, found = Trials(folder, "m", space, own, {}, seed), ModelTrials("m", float)
    for k in range(batches):
        found.trials += trials.ask(range(4 * k, 4 * k + 4), k)
        for each in found.trials[4 * k :]:
            found.trials[each.number] = replace(each, state="finished", score=loss(**each.settings))
            trials.add(found.trials[each.number], found.trials[each.number].score)
        trials.tell(found)
    return [each.settings for each in found.trials]


@settings(max_examples=3, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), dimensions, min_size=1, max_size=4),
    st.integers(0, 2**31),
    st.integers(1, 3),
)
def test_proposals_lie_in_the_space_and_are_seeded(space: dict[str, Any], seed: int, batches: int) -> None:
    own = dict(zip(space, next(itertools.product(*map(corners_of, space.values())))))

    def loss(**chosen: Any) -> float:
        return sum(len(repr(each)) for each in chosen.values()) % 7

    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        proposed = asked(Path(first), space, own, loss, batches, seed)
        assert proposed[0] == own and len(proposed) == 4 * batches
        for each in proposed:
            assert each.keys() == space.keys()
            assert all(dimension.widened(each[path]) == dimension for path, dimension in space.items())
        assert asked(Path(second), space, own, loss, batches, seed) == proposed


@pytest.mark.parametrize("line", (-16, -13, -9, -2))
def test_a_batch_whose_asking_a_kill_cut_short_is_the_same(tmp_path: Path, line: int) -> None:
    space: Space = {"x": Real(0, 1), "y": Real(0, 1)}
    own = {"x": 0.5, "y": 0.5}

    def loss(x: float, y: float) -> float:
        return x + y

    asked(tmp_path, space, own, loss, 2, 0)
    wanted = Trials(tmp_path, "m", space, own, {}, 0).ask(range(8, 12), 2)
    lines = (tmp_path / JOURNAL).read_text().splitlines(keepends=True)
    assert [json.loads(each)["op_code"] for each in lines[-16:]].count(4) == 4  # four are made there
    (tmp_path / JOURNAL).write_text("".join(lines[:line]))
    assert Trials(tmp_path, "m", space, own, {}, 0).ask(range(8, 12), 2) == wanted


@pytest.mark.slow
def test_proposals_find_a_minimum_that_chance_does_not(tmp_path: Path) -> None:
    space: Space = {"x": Real(1e-4, 1, log=True), "y": Real(0, 1), "z": Choice(("a", "b", "c"))}

    def loss(x: float, y: float, z: str) -> float:
        return (math.log10(x) + 2) ** 2 + (3 * y - 1) ** 2 + (z != "b")

    own = {"x": 1.0, "y": 0.0, "z": "a"}
    found = [loss(**each) for each in asked(tmp_path / "found", space, own, loss, 5, 0)]
    drawn = [loss(**each) for k in range(5) for each in asked(tmp_path / f"{k}", space, own, loss, 1, k + 1)]
    assert min(found) < min(0.1, min(drawn))
