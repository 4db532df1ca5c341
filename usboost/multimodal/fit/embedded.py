"""Images that a frozen backbone embeds before a fit is timed, or processes begin that would all do it."""

from __future__ import annotations

from threading import Lock
from typing import Any

from usboost.errors import UsboostError
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.train import pick_device
from usboost.table.user_table import UserTable


class Embedded:
    """The embeddings of a table's images, made once for each frozen backbone of models; of any thread."""

    def __init__(self, table: UserTable) -> None:
        self._table = table
        self._done: set[str] = set()
        self._lock = Lock()

    def prepare(self, model: Any) -> None:
        """Embed the images for the backbones of a model, if that has not been done."""
        if not self._table.images:
            return
        parts = [part for part in model.get_params(deep=True).values() if isinstance(part, Backbone)]
        with self._lock:
            for backbone in parts:
                if backbone.is_frozen and repr(backbone) not in self._done:
                    self._done.add(repr(backbone))
                    self._embed(backbone)

    def _embed(self, backbone: Backbone) -> None:
        for view in self._table.images.values():
            try:
                embedded(view, backbone, pick_device("auto"))
            except UsboostError:
                return  # the fit will say it
