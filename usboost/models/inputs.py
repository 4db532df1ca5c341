"""Views as learners read them: one as it is, or tables side by side, images as frozen embeddings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import TableNodes, ViewNodes
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.train import pick_device
from usboost.shards.collective import world

FILE = "projections.safetensors"

ROUNDING = 1e-6
"""Share of the largest variance below which a direction is only the rounding of float32."""

LARGEST = 1 << 26
"""Numbers that a projection in a file may have."""


@dataclass(frozen=True)
class Projection:
    """Principal components of the rows that it was fitted to.

    Attributes
    ----------
    mean : float32 (p,); axes : float32 (p, k), the directions of greatest variance, k = 0 for the mean alone
    """

    mean: np.ndarray
    axes: np.ndarray

    @classmethod
    def fit(cls, table: Table, n_components: int | None, weights: np.ndarray | None = None) -> "Projection":
        """Fit to a table's numeric columns and the rows that have them, at most min(n, p) components.

        Directions without variance are left out: what a row has along them is rounding alone. `n_components`
        None fits the mean alone.

        Parameters
        ----------
        weights : float64 (n,), positive, how many rows each stands for; None for 1
        """
        from sklearn.decomposition import PCA

        rows = table.numeric if table.absent is None else table.numeric[~table.absent]
        n_rows, none = world().sum(len(rows)), np.zeros((rows.shape[1], 0), np.float32)
        if not (n_rows and n_components):
            mean = world().sum(rows.sum(axis=0, dtype=np.float64)) / max(n_rows, 1)
            return cls(mean.astype(np.float32), none)
        if weights is None and world().count == 1:
            pca = PCA(min(n_components, *rows.shape), random_state=0).fit(rows)
            axes = pca.components_[pca.explained_variance_ >= ROUNDING * pca.explained_variance_[0]]
            return cls(pca.mean_.astype(np.float32), np.ascontiguousarray(axes.T, np.float32))
        # of the rows of all shards, by sums over them
        weights = np.ones(len(table)) if weights is None else weights
        weights = weights if table.absent is None else weights[~table.absent]
        total, n = world().sum(np.array([weights.sum(), len(rows)]))
        mean = world().sum(weights @ rows.astype(np.float64)) / total
        centred = (rows - mean) * np.sqrt(weights / total)[:, None]
        covariance = world().sum(centred.T @ centred)
        variances, vectors = world().once(lambda: tuple(np.linalg.eigh(covariance)))
        axes = vectors.T[variances >= ROUNDING * variances[-1]][::-1][: min(n_components, int(n))]
        # of the two signs of an axis that by which its largest entry is positive, as scikit-learn chooses
        axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
        return cls(mean.astype(np.float32), np.ascontiguousarray(axes.T, np.float32))

    def __call__(self, table: Table) -> Table:
        """Return the components of each row, called ``image component <k>``, as no column of a table is."""
        if table.numeric.shape[1] != len(self.mean):
            raise UsboostError(f"embeddings have {table.numeric.shape[1]} columns, not {len(self.mean)}")
        values = (table.numeric - self.mean) @ self.axes
        names = tuple(f"image component {k}" for k in range(values.shape[1]))
        return replace(Table.from_numeric(values, names), absent=table.absent)


@dataclass(frozen=True)
class InputSpec:
    """Describe what one learner reads.

    Attributes
    ----------
    views : several are read as tables side by side
    components : of images that are read as a table, so many principal components; None: all features
    images : whether it reads images themselves where they are all that it reads
    filled : whether a single table, too, has 0 and a further column where its image is missing
    """

    views: tuple[str, ...]
    components: int | None = None
    images: bool = False
    filled: bool = False


class InputReader:
    """Reads views for learners; fitted to training rows, from which principal components come.

    Where some training rows lacked a view, ``<view>_missing`` is a further column next to other tables. The
    view's own columns are 0 in rows without it, but features of an image are their training rows' mean.

    Parameters
    ----------
    wanted : by learner's name
    backbone : what embeds images that are read as tables
    device : where
    qualified : whether columns of tables side by side are called ``<view>__<column>``
    """

    def __init__(
        self,
        wanted: Mapping[str, InputSpec],
        backbone: Backbone | None,
        device: str = "auto",
        qualified: bool = False,
    ) -> None:
        self.wanted, self.backbone, self.device, self.qualified = wanted, backbone, device, qualified
        self.projections: dict[tuple[str, int | None], Projection] = {}
        self.absent: tuple[str, ...] = ()

    def fit(self, views: Views, weights: np.ndarray | None = None) -> Views:
        """Learn from these rows, of weights (n,) if there are any, and read them.

        Raises `UsboostError` if principal components are wanted, and no row has an image.
        """
        self.projections = {}
        images: list[Any] = [views[name] for name in views.names if _images(views[name])]
        given = any(each.absent is None or not each.absent.all() for each in images)
        if images and any(each.components for each in self.wanted.values()) and not world().highest(given):
            raise UsboostError("no training row has an image, so that nothing can be learnt of them")
        absent = [bool(np.any(getattr(views[name], "absent", None))) for name in views.names]
        lacking = world().highest(np.array(absent))
        self.absent = tuple(name for name, some in zip(views.names, lacking) if some)
        return self._read(views, self.wanted, learn=True, weights=weights)

    def __call__(self, views: Views, names: Iterable[str] | None = None) -> Views:
        """Read for each learner, or those of the names given, by its name."""
        return self._read(views, self.wanted if names is None else names, learn=False)

    def _read(
        self, views: Views, names: Iterable[str], *, learn: bool, weights: np.ndarray | None = None
    ) -> Views:
        tables: dict[tuple[str, int | None], Table] = {}  # a view is embedded once, whoever reads it

        def table(view: str, components: int | None) -> Table:
            if (view, components) not in tables:
                if isinstance(views[view], Table):
                    read = views[view]
                elif _images(views[view]):
                    read = embedded(views[view], self.backbone, pick_device(self.device))
                else:
                    kind = type(views[view]).__name__
                    raise UsboostError(f"view {view!r}, a {kind}, cannot be read as a table")
                if learn and _images(views[view]) and (view, components) not in self.projections:
                    self.projections[view, components] = Projection.fit(read, components, weights)
                if components and _images(views[view]):
                    if (view, components) not in self.projections:
                        raise UsboostError(f"the model holds no components of view {view!r}; train it again")
                    read = self.projections[view, components](read)
                if self.qualified:
                    read = replace(read, names=tuple(f"{view}__{column}" for column in read.names))
                tables[view, components] = read
            return tables[view, components]

        out: dict[str, View] = {}
        for name in names:
            wanted = self.wanted[name]
            first, *more = wanted.views
            if more or wanted.filled:
                k, parts = wanted.components, []
                for each in wanted.views:
                    missing = f"{each}_missing" if each in self.absent else None
                    parts.append(table(each, k).filled(missing, self._instead(each, k)))
                out[name] = reduce(Table.beside, parts)
            elif _images(views[first]) and not wanted.images:
                out[name] = table(first, wanted.components)
            else:
                out[name] = views[first]
        return Views(out)

    def _instead(self, view: str, components: int | None) -> Any:
        """Return what the columns of a view are in rows without it; models saved before have 0 for all."""
        mean = self.projections.get((view, None)) if components is None else None
        return np.float32(0) if mean is None else mean.mean

    def to_onnx(self, views: Mapping[str, ViewNodes]) -> dict[str, ViewNodes]:
        """Return what each learner reads of views in a graph."""

        def table(view: str, components: int | None) -> TableNodes:
            nodes = views[view]
            if isinstance(nodes, TableNodes):
                return nodes
            embedding: Any = (self.backbone or Backbone()).to_onnx(nodes)
            if not components:
                return embedding
            by = self.projections[view, components]
            centred = (embedding.numeric - by.mean).cast(np.float64)
            values = (centred @ by.axes.astype(np.float64)).cast(np.float32)
            return TableNodes(values, None, by.axes.shape[1], (), embedding.absent)

        def read(wanted: InputSpec) -> ViewNodes:
            if len(wanted.views) > 1 or wanted.filled:
                k = wanted.components
                own = [(table(each, k), each in self.absent, self._instead(each, k)) for each in wanted.views]
                return reduce(TableNodes.beside, (part.filled(*rest) for part, *rest in own))
            (view,) = wanted.views
            return views[view] if wanted.images else table(view, wanted.components)

        return {name: read(wanted) for name, wanted in self.wanted.items()}

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the projections to `FILE`; return JSON that lists them, and the views that rows may lack."""
        arrays: dict[str, np.ndarray] = {}
        for index, projection in enumerate(self.projections.values()):
            arrays |= {f"mean_{index}": projection.mean, f"axes_{index}": projection.axes}
        if arrays:
            write_arrays(arrays, folder / FILE)
        return {"projections": [list(key) for key in self.projections], "absent": list(self.absent)}

    def read(self, document: Any, folder: Path) -> None:
        """Read what `write` wrote.

        Raises `UsboostError` if the projections are not those of what the learners read, or hold other than
        finite numbers.
        """
        wanted = {(view, each.components) for each in self.wanted.values() for view in each.views}
        absent, projections = document["absent"], document["projections"]
        if not isinstance(absent, list) or not all(isinstance(name, str) for name in absent):
            raise UsboostError("the views that rows may lack are not names")
        self.absent = tuple(absent)
        arrays = read_arrays(folder / FILE) if projections else {}
        for index, (view, components) in enumerate(projections):
            mean, axes = arrays[f"mean_{index}"], arrays[f"axes_{index}"]
            right = mean.dtype == axes.dtype == np.float32 and mean.ndim == 1 and axes.ndim == 2
            if not right or len(mean) != len(axes) or axes.size > LARGEST or (view, components) not in wanted:
                raise UsboostError(f"the components of view {view!r} are not those that its learners read")
            if not (np.isfinite(mean).all() and np.isfinite(axes).all()):
                raise UsboostError(f"the components of view {view!r} hold a number that is not finite")
            self.projections[view, components] = Projection(mean, axes)


def embed(views: Views, backbone: Backbone, device: str = "auto") -> None:
    """Embed all images, so that what reads them next finds it done."""
    for name in views.names:
        if _images(views[name]):
            embedded(views[name], backbone, pick_device(device))


def _images(view: View) -> bool:
    return getattr(view, "kind", None) == "image"
