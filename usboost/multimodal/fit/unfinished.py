"""What is finished of a fit, on disk until its model is saved, so that the same command goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from usboost.boosting.checkpoint import Checkpoint, identity_of
from usboost.errors import UsboostError, option
from usboost.files.arrays import key_of
from usboost.shards.collective import world


class Keep(Protocol):
    """Where a fit keeps its rounds."""

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """Let a model that can keep its rounds keep them, and go on from those that are there.

        `samples`: (views, y, weights or None) of the training and, if there are any, the validation rows.
        """


_OURS = re.compile(r"[0-9a-f]{16}")


@contextmanager
def unfinished(folder: Path, told: Callable[[str], None]) -> Iterator[Unfinished]:
    """A folder for the rounds of a fit, which goes when the block succeeds and else stays.

    Raises UsboostError if something other than a folder is there.

    Parameters
    ----------
    folder : beside the model's. Files in it that are not ours are left as they are.
    told : called with what a user should know.
    """
    if folder.exists() and not folder.is_dir():
        raise UsboostError(
            f"{folder} is no folder, where a fit keeps its rounds; remove it, or change {option('out')}"
        )
    kept = Unfinished(folder, told)
    try:
        yield kept
    except BaseException as error:
        kept.remove(began=False)
        if isinstance(error, KeyboardInterrupt) and folder.exists():
            told(f"finished rounds are kept in {folder}; the same command goes on from there")
        raise
    kept.remove(began=True)


class Unfinished:
    """A folder of fits, each in a folder that is named by what decides it: parameters, data and code."""

    def __init__(self, folder: Path, told: Callable[[str], None]) -> None:
        self.folder = folder
        self._told = told
        self._before = {each.name for each in self._ours()}

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """Of these samples' fit; see `Keep.keep`."""
        if "checkpoint" not in model.get_params(deep=False):
            return
        identity = identity_of(model, samples)
        name = key_of(identity)[:16]
        if name in self._before:
            self._told(f"an earlier run of this fit did not end; it goes on from what is in {self.folder}")
        elif self._before:
            self._told(
                f"{self.folder} holds a fit that did not end, of other parameters, data or code; this one "
                "starts anew, and removes it when it has ended"
            )
        self._before = set()  # said once
        model.set_params(checkpoint=Checkpoint(self.folder / name, identity))

    def remove(self, *, began: bool) -> None:
        """Remove the fits; those of which something is finished only if `began`."""
        if world().number:
            return
        for each in self._ours():
            if began or not any(file.is_file() and file.name != "identity.json" for file in each.rglob("*")):
                shutil.rmtree(each, ignore_errors=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _ours(self) -> list[Path]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return [each for each in found if _OURS.fullmatch(each.name) and each.is_dir()]
